"""Models by id, `FAMILY:REST`: one folder per family.

Each family knows one library, which is imported when a model of the family is loaded.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
