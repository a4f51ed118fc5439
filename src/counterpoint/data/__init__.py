"""Where files come from: the data root, the catalogue of sources, downloads, archives.

Knows the ids of benchmarks and nothing else of them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
