"""Runs: folders of raw scores, and the numbers that are made from them.

Knows cases and metrics. Knows nothing of models: every number is computed again from the folder.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
