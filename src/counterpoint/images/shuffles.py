"""ARO's image shuffles: an image cut into pieces, the pieces in random order.

The authors shuffle what the model's preprocessing made, its square from the middle. Here the square
is cut out first and preprocessing follows, which is the same but for a pixel at the seams, and
works for every model.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from PIL import Image

PIECES: Final = {"rows": (4, 1), "columns": (1, 4), "patches": (3, 3)}  # down, across


def shuffled(image: Image.Image, how: str, seed: int) -> Image.Image:
    """The pieces of the image's middle square in an order that depends on `seed` alone."""
    down, across = PIECES[how]
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    square = np.asarray(image.crop((left, top, left + side, top + side)))
    height, width = side // down, side // across
    order = np.random.default_rng(seed).permutation(down * across)
    result = np.zeros_like(square)  # what does not divide stays black, as in the authors' code
    for place, source in enumerate(order.tolist()):
        to_y, to_x = divmod(place, across)
        from_y, from_x = divmod(source, across)
        result[_span(to_y, height), _span(to_x, width)] = square[
            _span(from_y, height), _span(from_x, width)
        ]
    return Image.fromarray(result)


def _span(place: int, size: int) -> slice:
    return slice(place * size, (place + 1) * size)
