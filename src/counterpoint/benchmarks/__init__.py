"""Benchmarks by id: one file per family of benchmarks.

Knows where cases come from and which cases the published benchmark has. No image is opened.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
