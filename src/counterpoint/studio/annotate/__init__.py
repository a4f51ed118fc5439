"""Campaigns: people judge images and captions, and what they said becomes numbers and files."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
