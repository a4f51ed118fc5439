"""The studio: pages to browse runs, try models and annotate. Imported when asked for."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
