from .doctor import Health as Health, examine as examine, with_clean as with_clean
from .evaluating import evaluate as evaluate, prepare as prepare
from .importing import import_scores as import_scores
from .outcome import (
    FILE as FILE,
    MEAN_SCORES as MEAN_SCORES,
    Change as Change,
    Outcome as Outcome,
    evaluate_outcome as evaluate_outcome,
)
from .precision import Flips as Flips, check_precision as check_precision
from .verifying import (
    Check as Check,
    Verdict as Verdict,
    judge as judge,
    near_models as near_models,
    not_the_model as not_the_model,
    published as published,
    published_model as published_model,
    verify as verify,
)
from .wise import (
    ALPHAS as ALPHAS,
    Line as Line,
    mixed as mixed,
    refuse_other as refuse_other,
    save_at as save_at,
    walk as walk,
)
from .wise_plot import Key as Key, draw as draw, panels as panels
