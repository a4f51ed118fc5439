from .captions import CaptionOptions as CaptionOptions
from .captions import Captions as Captions
from .captions import first_of as first_of
from .captions import open_captions as open_captions
from .source import Source as Source
