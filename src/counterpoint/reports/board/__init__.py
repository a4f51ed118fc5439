"""The board: a static site of many runs, with the papers' values beside them.

Every number links to a copy of the run that it can be computed from.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
