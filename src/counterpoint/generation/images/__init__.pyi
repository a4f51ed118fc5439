from .backends import DrawSettings as DrawSettings
from .candidates import (
    ImageCounts as ImageCounts,
    check as check,
    make_images as make_images,
    open_backend as open_backend,
    open_chooser as open_chooser,
)
from .nearest import (
    NearestImages as NearestImages,
    images_of as images_of,
    nearest_images as nearest_images,
    need_vectors as need_vectors,
    write_neighbours as write_neighbours,
)
