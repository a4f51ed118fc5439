"""Images by reference: the schemes of references, content keys, and opening images.

Knows cases, the world's drawings, and how tables hold images.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
