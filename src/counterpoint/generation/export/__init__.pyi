from .datasets import (
    VALIDATION as VALIDATION,
    detector_items as detector_items,
    export_benchmark as export_benchmark,
    export_training as export_training,
    validation_file as validation_file,
)
from .groups import ImagePaths as ImagePaths, read_groups as read_groups
from .hub import export_hub as export_hub
