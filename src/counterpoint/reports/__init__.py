"""Reports: runs as one page that can be sent, and their table for a paper.

Knows runs and what makes numbers of them, published values, blind baselines, images.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
