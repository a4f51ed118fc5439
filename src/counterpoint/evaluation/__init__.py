"""Making runs and judging them: evaluate, import, verify, examine; the line between two models.

Knows benchmarks, models and runs.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
