from .encode import (
    BatchSize as BatchSize,
    caption_keys as caption_keys,
    encode_captions as encode_captions,
    encode_images as encode_images,
    fill_captions as fill_captions,
    stored as stored,
)
from .engine import (
    compare_vectors as compare_vectors,
    encode_plan as encode_plan,
    score as score,
)
from .items import score_by_choices as score_by_choices
from .kinds import (
    BenchmarkScorer as BenchmarkScorer,
    BlindScorer as BlindScorer,
    Described as Described,
    DualEncoder as DualEncoder,
    Model as Model,
    PairScorer as PairScorer,
    RefusedInputsError as RefusedInputsError,
    TableScorer as TableScorer,
    Work as Work,
    check_kind as check_kind,
)
from .plan import (
    Plan as Plan,
    Scored as Scored,
    Share as Share,
    leave_out_captions as leave_out_captions,
    leave_out_images as leave_out_images,
    make_plan as make_plan,
    unscored as unscored,
    used_captions as used_captions,
    used_images as used_images,
)
from .probe import Probed as Probed, score_probe as score_probe
from .processes import (
    Processes as Processes,
    RayWorkers as RayWorkers,
    distributed as distributed,
)
from .workers import (
    Computed as Computed,
    Workers as Workers,
    compute as compute,
    in_threads as in_threads,
    once as once,
)
