from .adapter import OpenClip as OpenClip
from .adapter import load as load
from .folders import ABOUT as ABOUT
from .folders import fill_folder as fill_folder
from .ids import Source as Source
