"""Language models as methods, through any OpenAI-compatible server.

    template -> prompts -> model (asked once, kept) -> answers -> sentences -> drafts

`method.LanguageModelMethod` is what the rest of the library uses.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
