from .negatives import SCALES as SCALES
from .refining import (
    BlindResult as BlindResult,
    Refined as Refined,
    refine as refine,
)
from .rounds import RefineSettings as RefineSettings
