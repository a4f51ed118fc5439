from .adapter import OpenClip as OpenClip, load as load
from .folders import ABOUT as ABOUT, fill_folder as fill_folder
from .ids import OpenClipSource as OpenClipSource
from .tokens import CaptionTokens as CaptionTokens
from .trunk import OpenClipTrunk as OpenClipTrunk
