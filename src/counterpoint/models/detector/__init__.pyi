from .training import DetectorSettings as DetectorSettings, train as train
