from .captions import (
    BEFORE_SHUFFLES as BEFORE_SHUFFLES,
    CAPTION_FORMATS as CAPTION_FORMATS,
    formatted as formatted,
    normal as normal,
    read_words as read_words,
    shared_ends as shared_ends,
)
from .checks import (
    EMPTY_CAPTION as EMPTY_CAPTION,
    refuse_malformed as refuse_malformed,
    refuse_repeated_ids as refuse_repeated_ids,
)
from .files import read_cases as read_cases, write_cases as write_cases
from .galleries import (
    DETECTION as DETECTION,
    asked as asked,
    gallery_rows as gallery_rows,
    is_classification as is_classification,
    is_gallery as is_gallery,
    query_clusters as query_clusters,
    smaller_galleries as smaller_galleries,
    unanswered as unanswered,
    without_images as without_images,
)
from .table import (
    CHUNK as CHUNK,
    NO_NEGATIVE as NO_NEGATIVE,
    OPTIONAL as OPTIONAL,
    PICTURE as PICTURE,
    PROMPTS as PROMPTS,
    SCHEMA as SCHEMA,
    SURPLUS as SURPLUS,
    TEXT as TEXT,
    Absent as Absent,
    Block as Block,
    Case as Case,
    Cases as Cases,
    ImageRef as ImageRef,
    Layout as Layout,
    caption_case as caption_case,
    columns_in as columns_in,
    offsets as offsets,
)
