from .drafts import (
    CAPTIONS as CAPTIONS,
    MADE as MADE,
    TextSettings as TextSettings,
    make_by_rules as make_by_rules,
)
from .importing import import_cases as import_cases, import_texts as import_texts
from .language.sentences import exchanged as exchanged, phrases_of as phrases_of
from .pairs import (
    KINDS as KINDS,
    SCHEMA as SCHEMA,
    SUBTYPES as SUBTYPES,
    Kind as Kind,
    is_pairs_file as is_pairs_file,
    read_about as read_about,
    read_pairs as read_pairs,
    rebased as rebased,
    require_parquet as require_parquet,
    reserved as reserved,
    root_of as root_of,
    write_pairs as write_pairs,
)
from .registry import (
    RULES as RULES,
    Rule as Rule,
    chosen_methods as chosen_methods,
    methods as methods,
)
from .replace import (
    MOST_COMMON as MOST_COMMON,
    ReplaceCounts as ReplaceCounts,
    make_replace as make_replace,
)
from .run import Generated as Generated, generate as generate
from .scene_graphs import generate_from_graphs as generate_from_graphs
