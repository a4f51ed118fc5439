from .refining import Refined as Refined, Row as Row, Settings as Settings, refine as refine
from .selecting import SCALES as SCALES
