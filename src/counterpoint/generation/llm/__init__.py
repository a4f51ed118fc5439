"""Language models as methods, through any OpenAI-compatible server.

    template -> prompts -> model (each request is sent once) -> answers -> drafts

`ChatMethod` is what the other rooms use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
