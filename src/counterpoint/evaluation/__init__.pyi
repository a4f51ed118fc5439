from .devices import Flips as Flips, check_precision as check_precision
from .doctor import Health as Health, examine as examine, with_clean as with_clean
from .evaluating import evaluate as evaluate, prepare as prepare, slug as slug
from .importing import import_scores as import_scores
from .outcome import (
    MEAN_SCORES as MEAN_SCORES,
    OUTCOME_FILE as OUTCOME_FILE,
    MetricChange as MetricChange,
    Outcome as Outcome,
    evaluate_outcome as evaluate_outcome,
)
from .submissions import (
    RESULTS as RESULTS,
    Submission as Submission,
    check_submission as check_submission,
    find_submissions as find_submissions,
    write_results as write_results,
)
from .sweep_engines import sweep_evaluations as sweep_evaluations
from .sweeping import (
    EvalCell as EvalCell,
    EvalPlan as EvalPlan,
    EvalSweep as EvalSweep,
    Forecast as Forecast,
    default_folder as default_folder,
    forecast as forecast,
    read_plan as read_plan,
)
from .trained_on import (
    TrainingRecord as TrainingRecord,
    copy_records as copy_records,
    photograph_digests as photograph_digests,
    pictures_and_texts as pictures_and_texts,
    read_records as read_records,
    text_digests as text_digests,
    write_record as write_record,
)
from .vectors import ExportedVectors as ExportedVectors, export_vectors as export_vectors
from .verifying import (
    Check as Check,
    Verdict as Verdict,
    half_precision as half_precision,
    judge as judge,
    near_models as near_models,
    not_the_model as not_the_model,
    published as published,
    published_id as published_id,
    published_model as published_model,
    tied_captions as tied_captions,
    verify as verify,
)
from .watching import Watch as Watch, WatchedCheckpoint as WatchedCheckpoint
from .wise import (
    ALPHAS as ALPHAS,
    Line as Line,
    evaluate_line as evaluate_line,
    mix_weights as mix_weights,
    refuse_other_model as refuse_other_model,
    save_mixed as save_mixed,
)
