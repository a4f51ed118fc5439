from .refining import (
    BlindResult as BlindResult,
    Refined as Refined,
    RefineSettings as RefineSettings,
    refine as refine,
)
from .selecting import SCALES as SCALES
