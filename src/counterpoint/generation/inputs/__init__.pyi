from .captions import (
    CaptionOptions as CaptionOptions,
    Captions as Captions,
    first_of as first_of,
    is_case_file as is_case_file,
    open_captions as open_captions,
)
from .source import SourceCaption as SourceCaption
