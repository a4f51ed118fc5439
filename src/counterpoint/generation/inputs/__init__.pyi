from .captions import (
    CaptionOptions as CaptionOptions,
    Captions as Captions,
    SourceCaption as SourceCaption,
    is_case_file as is_case_file,
    open_captions as open_captions,
)
