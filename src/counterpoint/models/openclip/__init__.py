"""open_clip models: by architecture and tag, by folder, or from a finetuned checkpoint."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
