from .refining import Refined as Refined
from .refining import Row as Row
from .refining import Settings as Settings
from .refining import refine as refine
from .selecting import SCALES as SCALES
