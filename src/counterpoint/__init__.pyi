from ._util.errors import CounterpointError as CounterpointError
from .api import (
    board as board,
    compare as compare,
    doctor as doctor,
    export as export,
    export_vectors as export_vectors,
    generate as generate,
    load_model as load_model,
    load_runs as load_runs,
    publish as publish,
    refine as refine,
    report as report,
    rescore as rescore,
    sweep as sweep,
    train as train,
    verify as verify,
    wise as wise,
)
from .benchmarks import (
    Benchmark as Benchmark,
    LoadedBenchmark as LoadedBenchmark,
    list_benchmarks as list_benchmarks,
    load_benchmark as load_benchmark,
)
from .cases import (
    Case as Case,
    Cases as Cases,
    ImageRef as ImageRef,
    caption_case as caption_case,
    read_cases as read_cases,
    write_cases as write_cases,
)
from .evaluation import evaluate as evaluate, examine as examine, import_scores as import_scores
from .models import list_models as list_models
from .runs import Comparison as Comparison, Results as Results, Run as Run, load_run as load_run
from .scoring import (
    BenchmarkScorer as BenchmarkScorer,
    BlindScorer as BlindScorer,
    DualEncoder as DualEncoder,
    PairScorer as PairScorer,
    TableScorer as TableScorer,
)

__version__: str
__all__: list[str]
