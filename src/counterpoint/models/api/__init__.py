"""Chat endpoints that are compatible with OpenAI's: the client, the questions, the answers."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
