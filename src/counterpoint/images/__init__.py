"""Images by reference: what an image is called, its content key, and opening it.

Knows cases, the world's drawings, and how archives and tables hold images.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
