from .baselines import (
    SCORERS as SCORERS,
    TEXT_MODELS as TEXT_MODELS,
    BagOfWords as BagOfWords,
    Format as Format,
    Length as Length,
    by_pair as by_pair,
)
