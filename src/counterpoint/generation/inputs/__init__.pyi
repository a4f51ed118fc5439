from .captions import (
    Captions as Captions,
    first_of as first_of,
    is_case_file as is_case_file,
    open_captions as open_captions,
)
from .files import CaptionOptions as CaptionOptions, SourceCaption as SourceCaption
