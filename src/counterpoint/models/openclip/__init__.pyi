from .adapter import OpenClip as OpenClip, load as load
from .ids import OpenClipSource as OpenClipSource
from .tokens import CaptionTokens as CaptionTokens
from .training import (
    ABOUT as ABOUT,
    OpenClipTrunk as OpenClipTrunk,
    fill_folder as fill_folder,
)
