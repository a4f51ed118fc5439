"""From cases to scores: find what is unique, encode it once, store it, compare in float32.

Knows the kinds of model (`kinds`), and no particular model.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
