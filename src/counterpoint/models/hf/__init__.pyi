from .dual import HfDual as HfDual
from .loading import as_text as as_text, bars as bars
from .training import HfStart as HfStart
