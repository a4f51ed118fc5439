"""What pairs are made from: captions of files, benchmarks and scene graphs, as streams."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
