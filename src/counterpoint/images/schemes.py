"""The registry of image schemes: what an image reference can be, and how each kind is used.

    a/b.jpg                        a file, relative to the data root
    world:CODE                     a scene of the synthetic world, drawn when it is opened
    parquet:FILE#COLUMN/ROW        an image inside a table
    tar:FILE.tar#MEMBER            a member of a tar file, which is read in place
    shuffle-rows:SEED:REFERENCE    the pieces of another image in random order; also -columns and
                                   -patches
    text:CAPTION                   no image: a text in its place, which captions are compared with

`scheme_of` finds the scheme of a reference. No other place looks at how a reference begins.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import numpy as np
from PIL import Image

from counterpoint._util.errors import ImageError
from counterpoint._util.store import Store, digest
from counterpoint.cases import TEXT
from counterpoint.images.files import (
    decode,
    file_content,
    named,
    read_cell,
    read_file,
    read_member,
)

if TYPE_CHECKING:
    from counterpoint.world import Scene

PIECES: Final = {"rows": (4, 1), "columns": (1, 4), "patches": (3, 3)}  # down, across
_DIGITS: Final = 40  # of a row or a seed
_TAR_MARK: Final = ".tar#"  # a member's name may hold a # of its own
_MOST_SHUFFLES: Final = 9  # of one image


class Scheme:
    """The images of one kind of reference. This class itself is for plain files.

    `prefix` is how its references begin. `in_file` says that they name a file, `drawn` that the
    image is drawn by this program.
    """

    prefix = ""
    in_file, drawn = True, False

    def content(self, reference: str, root: Path | None, store: Store) -> bytes:
        """A digest of the image's content. Raises ImageError if there is no such image."""
        return file_content(*self.find(reference, root), store)

    def read(self, reference: str, root: Path | None) -> bytes | None:
        """The image's encoded bytes; None if it has none. Raises ImageError."""
        return self.find(reference, root)[2]()

    def open(self, reference: str, root: Path | None) -> Image.Image:
        """The image as RGB. Raises ImageError."""
        path, part, read = self.find(reference, root)
        return decode(read(), reference if part else path)

    def file(self, reference: str, root: Path | None) -> Path | None:
        """The file that holds the image, if it is in one."""
        return self.find(reference, root)[0]

    def find(self, reference: str, root: Path | None) -> tuple[Path, str, Callable[[], bytes]]:
        """The file, a name of the image in it unless it is the file, and what reads it."""
        path = path_below(root, reference)
        return path, "", lambda: read_file(path)

    def split(self, reference: str) -> tuple[str, str, str]:
        """What is before the path of its file, the path, and what is behind it."""
        return "", reference, ""

    def image_path(self, reference: str) -> str | None:
        """The path of the image file that the reference names, None if it names none."""
        return reference

    def with_path(self, reference: str, change: Callable[[str], str]) -> str:
        """The reference with the path of its file changed; itself if it names no file."""
        before, path, behind = self.split(reference)
        return f"{before}{change(path)}{behind}" if path else reference


class _NoFile(Scheme):
    in_file = False

    def read(self, reference: str, root: Path | None) -> None:
        return None

    def file(self, reference: str, root: Path | None) -> None:
        return None

    def split(self, reference: str) -> tuple[str, str, str]:
        return reference, "", ""

    def image_path(self, reference: str) -> None:
        return None


class _World(_NoFile):
    prefix, drawn = "world:", True

    def content(self, reference: str, root: Path | None, store: Store) -> bytes:
        from counterpoint.world import PIXELS, VERSION

        return digest(f"{self.prefix}{VERSION}:{PIXELS}", reference)

    def open(self, reference: str, root: Path | None) -> Image.Image:
        from counterpoint.world import SceneCodeError, draw, read_scene

        try:
            scene = read_scene(reference.removeprefix(self.prefix))
        except SceneCodeError as error:
            what = f"image {self.prefix}: {error}"
            raise ImageError("E-IMAGE-REFERENCE", what) from None
        return Image.fromarray(draw([scene])[0])


class _Parquet(Scheme):
    prefix = "parquet:"

    def split(self, reference: str) -> tuple[str, str, str]:
        file, mark, cell = reference.removeprefix(self.prefix).rpartition("#")
        return self.prefix, file, f"{mark}{cell}"

    def find(self, reference: str, root: Path | None) -> tuple[Path, str, Callable[[], bytes]]:
        _, file, cell = self.split(reference)
        column, _, row = cell[1:].rpartition("/")
        if not file or not column or not _is_number(row):
            _refuse(reference, f"should be {self.prefix}FILE#COLUMN/ROW")
        path, place = path_below(root, file), (column, int(row))
        return path, repr(place), lambda: read_cell(path, *place)

    def image_path(self, reference: str) -> None:
        return None


class _Tar(Scheme):
    prefix = "tar:"

    def split(self, reference: str) -> tuple[str, str, str]:
        file, mark, member = reference.removeprefix(self.prefix).partition(_TAR_MARK)
        return self.prefix, f"{file}{mark[:-1]}", f"{mark[-1:]}{member}"

    def find(self, reference: str, root: Path | None) -> tuple[Path, str, Callable[[], bytes]]:
        _, file, member = self.split(reference)
        if file in ("", _TAR_MARK[:-1]) or not member[1:]:
            _refuse(reference, f"should be {self.prefix}FILE.tar#MEMBER")
        path = path_below(root, file)
        return path, f"tar {member[1:]}", lambda: read_member(path, member[1:])

    def image_path(self, reference: str) -> None:
        return None


class _Shuffle(Scheme):
    prefix = "shuffle-"

    def content(self, reference: str, root: Path | None, store: Store) -> bytes:
        how, seed, inner = self._parts(reference)
        return digest(how, str(seed), scheme_of(inner).content(inner, root, store))

    def read(self, reference: str, root: Path | None) -> None:
        return None

    def open(self, reference: str, root: Path | None) -> Image.Image:
        how, seed, inner = self._parts(reference)
        return shuffled(scheme_of(inner).open(inner, root), how, seed)

    def file(self, reference: str, root: Path | None) -> Path | None:
        inner = self._parts(reference)[2]
        return scheme_of(inner).file(inner, root)

    def split(self, reference: str) -> tuple[str, str, str]:
        how, seed, inner = [*reference.split(":", 2), "", ""][:3]
        before, path, behind = scheme_of(inner).split(inner)
        return f"{how}:{seed}:{before}", path, behind

    def image_path(self, reference: str) -> str | None:
        inner = reference.partition(":")[2].partition(":")[2]
        return scheme_of(inner).image_path(inner)

    def _parts(self, reference: str) -> tuple[str, int, str]:
        """`shuffle-rows:1:a.jpg` is rows, 1, a.jpg."""
        how, _, rest = reference.removeprefix(self.prefix).partition(":")
        seed, _, inner = rest.partition(":")
        if how not in PIECES or not _is_number(seed) or not inner:
            _refuse(reference, f"should be {self.prefix}{'|'.join(PIECES)}:SEED:REFERENCE")
        if reference.count(f":{self.prefix}") > _MOST_SHUFFLES:
            _refuse(reference, "shuffled too many times")
        return how, int(seed), inner


class _Text(_NoFile):
    prefix = TEXT

    def content(self, reference: str, root: Path | None, store: Store) -> NoReturn:
        self.open(reference, root)

    def open(self, reference: str, root: Path | None) -> NoReturn:
        what = "a text stands in the image's place, and this model compares no texts."
        raise ImageError("E-IMAGE-IS-TEXT", what)


PLAIN: Final = Scheme()
_WORLD, _PARQUET, _TAR, _SHUFFLE = _World(), _Parquet(), _Tar(), _Shuffle()
SCHEMES: Final[tuple[Scheme, ...]] = (_WORLD, _PARQUET, _TAR, _SHUFFLE, _Text())


def scheme_of(reference: str) -> Scheme:
    return next((scheme for scheme in SCHEMES if reference.startswith(scheme.prefix)), PLAIN)


def world_reference(scene: Scene) -> str:
    return f"{_WORLD.prefix}{scene.code()}"


def scene_of(reference: str) -> Scene | None:
    """The scene of a reference to the world; None for any other reference."""
    from counterpoint.world import SceneCodeError, read_scene

    if scheme_of(reference) is not _WORLD:
        return None
    try:
        return read_scene(reference.removeprefix(_WORLD.prefix))
    except SceneCodeError:
        return None


def cell_reference(file: str, column: str, row: int) -> str:
    """An image inside a Parquet file."""
    return f"{_PARQUET.prefix}{file}#{column}/{row}"


def member_reference(file: str, member: str) -> str:
    """An image inside a tar file, whose name ends in .tar."""
    return f"{_TAR.prefix}{file}#{member}"


def shuffle_reference(how: str, seed: int, reference: str) -> str:
    """Another image with its pieces shuffled; `how` is one of PIECES."""
    return f"{_SHUFFLE.prefix}{how}:{seed}:{reference}"


def path_below(root: Path | None, reference: str) -> Path:
    """The path of a plain file. Links may lead out of the root, `..` may not."""
    path = Path(reference)
    if path.is_absolute() or root is None:
        return path
    if ".." in path.parts:
        what = f"{named(reference)}: the path leads out of {root}."
        raise ImageError("E-PATH-OUTSIDE", what)
    return root / path


def shuffled(image: Image.Image, how: str, seed: int) -> Image.Image:
    """ARO's image shuffles: the pieces of the image's middle square in random order.

    The order depends on `seed` alone. The authors shuffle the square that the model's preprocessing
    made. Here the square is cut out first and preprocessing follows: the same but for a pixel at
    the seams, and it works for every model.
    """
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


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) <= _DIGITS


def _refuse(reference: str, what: str) -> NoReturn:
    raise ImageError("E-IMAGE-REFERENCE", f"{named(reference)}: {what}.")
