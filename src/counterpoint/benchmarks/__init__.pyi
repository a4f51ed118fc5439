from .aro import REPLACED as REPLACED, SYNONYMS as SYNONYMS
from .benchmark import (
    WITH_POSITIVES as WITH_POSITIVES,
    Benchmark as Benchmark,
    LoadedBenchmark as LoadedBenchmark,
    Options as Options,
)
from .completeness import (
    absent_from as absent_from,
    counted as counted,
    describe_absent as describe_absent,
    published_counts as published_counts,
    unexplained as unexplained,
    whole_size as whole_size,
    why_incomplete as why_incomplete,
)
from .registry import (
    BENCHMARKS as BENCHMARKS,
    base_id as base_id,
    find_benchmark as find_benchmark,
    list_benchmarks as list_benchmarks,
    load_benchmark as load_benchmark,
    own_cases as own_cases,
)
from .word_order import SHUFFLES as SHUFFLES
