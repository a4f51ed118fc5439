"""Models of transformers that give one vector or one score per image and caption."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
