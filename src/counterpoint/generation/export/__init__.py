"""Pairs as a benchmark, as a training set, or as a data set to publish.

pairs files -> groups (a caption with all its texts) -> benchmark, training set
pairs files -> shards and a card -> data set folder
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
