from .training import Settings as Settings
from .training import train as train
