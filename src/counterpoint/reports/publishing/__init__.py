"""Runs as other programs read them: the Hugging Face Hub, Every Eval Ever, W&B.

Every number comes from `run.results()`. Nothing is uploaded.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
