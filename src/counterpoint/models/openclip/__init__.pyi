from .adapter import CaptionTokens as CaptionTokens, OpenClip as OpenClip, load as load
from .ids import OpenClipSource as OpenClipSource
from .training import (
    ABOUT as ABOUT,
    OpenClipTrunk as OpenClipTrunk,
    fill_folder as fill_folder,
)
