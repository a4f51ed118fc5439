from .hub import (
    find_source as find_source,
    guarded as guarded,
    hub_or_cache as hub_or_cache,
    pretrained as pretrained,
)
from .registry import (
    DEVICES as DEVICES,
    EXAMPLES as EXAMPLES,
    FAMILIES as FAMILIES,
    TRAINED_ON as TRAINED_ON,
    LoadOptions as LoadOptions,
    check_model as check_model,
    is_device as is_device,
    list_models as list_models,
    load_model as load_model,
    records_in as records_in,
)
from .remembered import load_remembered as load_remembered
from .torch_models import (
    Runtime as Runtime,
    fingerprint as fingerprint,
    memory_errors as memory_errors,
    pick_device as pick_device,
    plain as plain,
    quiet as quiet,
    set_arithmetic as set_arithmetic,
    split_transform as split_transform,
)
from .trunk import ImageTrunk as ImageTrunk
from .vectors import (
    VECTOR_FORMATS as VECTOR_FORMATS,
    NamedVectors as NamedVectors,
    are_units as are_units,
    image_name as image_name,
    open_image_vectors as open_image_vectors,
    write_vectors as write_vectors,
)
