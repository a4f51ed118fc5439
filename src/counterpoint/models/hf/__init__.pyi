from .loading import as_text as as_text, bars as bars
