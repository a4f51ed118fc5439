from .loading import as_text as as_text
from .loading import bars as bars
