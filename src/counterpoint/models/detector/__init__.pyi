from .training import Settings as Settings, train as train
