"""The synthetic world: the embedded default, where the truth of every caption is known.

Scenes, their captions, edits of both, and pictures, for benchmarks and for training. Knows nothing
of benchmarks or models.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
