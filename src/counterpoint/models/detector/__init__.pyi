from .training import (
    DetectorSettings as DetectorSettings,
    LabelledItems as LabelledItems,
    read_labelled as read_labelled,
    train as train,
)
