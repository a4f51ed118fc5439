"""Making hard positives and hard negatives, from captions to a benchmark or a training set.

A pair is a caption and a text made from it. Rules and language models make pairs; checks,
refinement, images and exports take pairs. Knows benchmarks, models and the scoring engine.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
