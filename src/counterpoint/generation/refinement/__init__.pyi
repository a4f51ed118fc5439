from .negatives import SCALES as SCALES
from .refining import (
    BlindResult as BlindResult,
    Refined as Refined,
    RefineSettings as RefineSettings,
    refine as refine,
)
