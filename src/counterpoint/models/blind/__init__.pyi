from .baselines import (
    SCORERS as SCORERS,
    TEXT_MODELS as TEXT_MODELS,
    BagOfWords as BagOfWords,
    Format as Format,
    Length as Length,
)
from .fitted import (
    FITTED as FITTED,
    Differences as Differences,
    Ngrams as Ngrams,
    by_pair as by_pair,
)
