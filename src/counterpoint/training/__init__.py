"""Training with hard positives and hard negatives: recipes, losses, data, the loop.

Knows pairs, dual encoders, and evaluation for the table at the end.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
