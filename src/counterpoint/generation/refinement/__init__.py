"""Refinement: keep the negatives that a model without images cannot tell from captions."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
