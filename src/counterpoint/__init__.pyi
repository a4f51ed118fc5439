from ._util.errors import CounterpointError as CounterpointError
from .benchmarks import load_benchmark as load_benchmark
from .cases import (
    Case as Case,
    Cases as Cases,
    ImageRef as ImageRef,
    caption_case as caption_case,
    read_cases as read_cases,
    write_cases as write_cases,
)
from .evaluation import (
    evaluate as evaluate,
    examine as examine,
    import_scores as import_scores,
    verify as verify,
)
from .runs import Run as Run, compare as compare, load_run as load_run, rows as rows
