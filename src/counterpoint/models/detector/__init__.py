"""The detector of synthetic images and captions that BiVLC is checked with, and its training."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
