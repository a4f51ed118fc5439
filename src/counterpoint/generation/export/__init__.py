"""From pairs to something that others read: a benchmark, a training set, a data set to publish.

pairs files -> groups (a caption with all its texts) -> benchmark, training
pairs files -> shards, card, Croissant                  hub
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
