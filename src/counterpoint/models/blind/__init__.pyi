from .baselines import (
    FITTED as FITTED,
    SCORERS as SCORERS,
    TEXT_MODELS as TEXT_MODELS,
    BagOfWords as BagOfWords,
    Differences as Differences,
    Format as Format,
    Length as Length,
    Ngrams as Ngrams,
    by_pair as by_pair,
)
