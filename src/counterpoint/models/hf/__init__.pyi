from .dual import HfDual as HfDual
from .loading import (
    as_text as as_text,
    bars as bars,
    explained as explained,
    load_weights as load_weights,
    opening as opening,
)
from .training import HfStart as HfStart
