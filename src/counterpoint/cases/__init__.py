"""Cases: k images x m captions x truth. The table, its checks and its files.

Knows NumPy and polars. Nothing here opens an image or knows a metric.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
