from .every_eval import SCHEMA_VERSION as SCHEMA_VERSION
from .hub import publish as publish
from .parts import (
    PublishedPart as PublishedPart,
    PublishOptions as PublishOptions,
    Relationship as Relationship,
    names_apart as names_apart,
    safe_name as safe_name,
)
