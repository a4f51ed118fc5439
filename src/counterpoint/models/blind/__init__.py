"""Baselines that see no image. What they get right, a benchmark gives away."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
