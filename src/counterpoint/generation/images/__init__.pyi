from .backends import Backend as Backend, DrawSettings as DrawSettings, ImageFolder as ImageFolder
from .candidates import (
    ImageCounts as ImageCounts,
    make_images as make_images,
    open_backend as open_backend,
    open_chooser as open_chooser,
)
from .nearest import NearestImages as NearestImages, write_neighbours as write_neighbours
from .renderings import (
    CHANGES as CHANGES,
    PhotoChanges as PhotoChanges,
    RenderingCounts as RenderingCounts,
    from_neighbours as from_neighbours,
    from_pairs as from_pairs,
    make_renderings as make_renderings,
    record_of as record_of,
)
