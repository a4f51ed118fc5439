"""Metrics: what is counted, by which protocol, what chance gives, and how sure it is.

Pure functions of scores and truth. Knows cases; knows nothing of models, runs or files.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
