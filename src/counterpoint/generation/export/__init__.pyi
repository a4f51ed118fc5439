from .benchmark import export_benchmark as export_benchmark
from .groups import ImagePaths as ImagePaths, read_groups as read_groups
from .hub import export_hub as export_hub
from .training import (
    VALIDATION as VALIDATION,
    detector_items as detector_items,
    export_training as export_training,
    validation_file as validation_file,
)
