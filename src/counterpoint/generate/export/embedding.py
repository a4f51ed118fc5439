"""Images as bytes, to put into a table."""

from __future__ import annotations

import io
from pathlib import Path

from counterpoint.cases import TEXT, ImageRef
from counterpoint.errors import ImageError, reason
from counterpoint.generate.export.image_paths import PARQUET, SHUFFLE, WORLD
from counterpoint.untrusted import shown


def image_bytes(path: str, root: Path) -> tuple[bytes, str]:
    """An image's file as it is, or what has no file of its own as PNG; and a name for it.

    The image is opened, so that what cannot be read is found here and not by whoever loads the
    data set: raises ImageError.
    """
    from counterpoint.scoring.pictures import Picture  # Pillow and the store are slow to import

    picture = Picture(ImageRef(path), root)
    image = picture.open()
    if not path.startswith((WORLD, PARQUET, SHUFFLE, TEXT)):
        file = picture.path()
        try:
            return file.read_bytes(), file.name
        except OSError as error:
            raise ImageError(
                f"image {shown(str(file))}: cannot be read: {reason(error)}."
            ) from None
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue(), "image.png"
