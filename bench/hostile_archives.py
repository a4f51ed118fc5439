"""Archives made to harm who extracts them: bombs, lies about sizes, names and links that lead out.

    python bench/hostile_archives.py --archives 160 --seed 1

Each is extracted in a process of its own. Prints a table by harm, and ends with status 1 if a byte
was written outside of the target, or something was left in it by an archive that was refused, or
one ended in a traceback, after more than 20 seconds of a processor or in more than 1 GiB of memory.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import io
import lzma
import os
import random
import stat
import struct
import sys
import tarfile
import tempfile
import zipfile
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from hostile import in_child
from rich.console import Console
from rich.table import Table

from counterpoint.data.archives import extract

SECONDS, MEMORY = 20.0, 2**30
GOOD: Final = {"0.txt": b"", "images/1.jpg": b"one", "images/deep/2.jpg": b"two"}
CODECS: Final = ("", "gz", "bz2", "xz")
NAMES: Final = (
    *("../evil", "/evil", "//evil", "a/../../evil", "a\\..\\..\\evil", "..\\evil", "C:\\evil"),
    *("C:/evil", "./../evil", "images/../../evil", "\\\\host\\evil", "~/../evil", "..", ".", ""),
    *("a/" * 300 + "evil", "x" * 300, "a\0/../../evil", "evil\n", "\x1b[31mevil", "\u202eevil"),
    *("\udc80evil", "images/1.jpg/evil", "....//evil", "%2e%2e/evil", "a/./../../evil", "CON"),
)
Harm = Callable[[Path, Path, random.Random], None]  # makes the archive for a target


def a_zip(path: Path, *members: tuple[str | zipfile.ZipInfo, bytes]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content, zipfile.ZIP_DEFLATED)


def a_tar(path: Path, codec: str, *members: tuple[str | tarfile.TarInfo, bytes]) -> None:
    with tarfile.open(path, f"w:{codec}") as archive:  # type: ignore[call-overload]
        for name, content in members:
            info = tarfile.TarInfo(name) if isinstance(name, str) else name
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def good(*more: tuple[str, bytes]) -> list[tuple[str, bytes]]:
    return [*GOOD.items(), *more]


def packed(rng: random.Random, path: Path, members: list[tuple[str, bytes]]) -> None:
    """In an archive of any kind."""
    codec = rng.choice((*CODECS, "zip"))
    if codec == "zip":
        a_zip(path, *members)
    else:
        a_tar(path, codec, *members)


# --- sizes ---------------------------------------------------------------------------------------


def bomb(path: Path, _: Path, rng: random.Random) -> None:
    """Gigabytes of zeros in a stream, as large as the header says."""
    header = tarfile.TarInfo("big")
    header.size = rng.choice((1, 4, 8)) * 2**30
    make = rng.choice((gzip.GzipFile, bz2.BZ2File, lzma.LZMAFile))
    with make(path, "wb") as out:
        out.write(header.tobuf(tarfile.GNU_FORMAT))
        for _number in range(rng.choice((64, 400))):
            out.write(bytes(2**20))


def rest(path: Path, _: Path, rng: random.Random) -> None:
    """Zeros without end after the last member."""
    codec, make = rng.choice((("gz", gzip.GzipFile), ("bz2", bz2.BZ2File), ("xz", lzma.LZMAFile)))
    a_tar(path, codec, *good())
    with make(path, "ab") as out:
        for _number in range(2_000):
            out.write(bytes(2**20))


def zip_bomb(path: Path, _: Path, rng: random.Random) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for number in range(rng.choice((1, 6))):
            with archive.open(f"{number}", "w", force_zip64=True) as out:
                for _number in range(400):
                    out.write(bytes(2**20))


def lying_size(path: Path, _: Path, rng: random.Random) -> None:
    """A zip whose directory gives another size than there is."""
    a_zip(path, ("big", bytes(rng.choice((2**10, 300 * 2**20)))))
    data = bytearray(path.read_bytes())
    at = data.rindex(b"PK\x01\x02") + 24
    data[at : at + 4] = struct.pack("<I", rng.choice((0, 1, 2**31, 2**32 - 1)))
    path.write_bytes(data)


def lying_tar(path: Path, _: Path, rng: random.Random) -> None:
    """Sizes beyond the end, below zero, of sixty-three bits."""
    header = tarfile.TarInfo("big")
    header.size = rng.choice((10**6, 2**40, 2**62))
    data = bytearray(header.tobuf(tarfile.GNU_FORMAT))
    if rng.random() < 0.3:
        data[124:136] = b"\xff" * 12
        data[148:156] = b" " * 8
        data[148:156] = b"%06o\0 " % sum(data[:512])
    path.write_bytes(bytes(data) + bytes(1024))


def overlapping(path: Path, _: Path, rng: random.Random) -> None:
    """Every entry of the directory is the same content."""
    a_zip(path, ("0", bytes(rng.choice((2**20, 50 * 2**20)))))
    data = path.read_bytes()
    start = data.index(b"PK\x01\x02")
    end = data.rindex(b"PK\x05\x06")
    count = rng.choice((100, 3000))
    entry = data[start:end]
    tail = bytearray(data[end:])
    tail[8:16] = struct.pack("<HHI", count, count, len(entry) * count)
    path.write_bytes(data[:start] + entry * count + bytes(tail))


def many(path: Path, _: Path, rng: random.Random) -> None:
    count = rng.choice((70_000, 120_000))
    names = [f"{rng.choice(('', 'd/'))}{number}" for number in range(count)]
    a_tar(path, rng.choice(CODECS[1:]), *((name, b"") for name in names))


def many_folders(path: Path, _: Path, rng: random.Random) -> None:
    packed(rng, path, [("a/" * 90 + f"{number}/x", b"") for number in range(600)])


def huge_header(path: Path, _: Path, rng: random.Random) -> None:
    """A name, or an extension, of many megabytes."""
    header = tarfile.TarInfo("././@LongLink")
    header.type = rng.choice((tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.XGLTYPE))
    header.size = rng.choice((2**20, 60 * 2**20, 2**33))
    make = rng.choice((gzip.compress, bz2.compress, lzma.compress))
    content = header.tobuf(tarfile.GNU_FORMAT) + b"a" * min(header.size, 80 * 2**20)
    path.write_bytes(make(content))


def many_headers(path: Path, _: Path, rng: random.Random) -> None:
    """Extensions without end, of a member that never comes: tarfile reads each inside the last."""
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = rng.choice((tarfile.GNUTYPE_LONGNAME, tarfile.XGLTYPE)), 512
    one = header.tobuf(tarfile.GNU_FORMAT) + b"a" * 512
    path.write_bytes(gzip.compress(one * rng.choice((2_000, 100_000))))


def sparse(path: Path, _: Path, rng: random.Random) -> None:
    """A file of a few bytes that says it is of a terabyte, with holes."""
    header = tarfile.TarInfo("sparse")
    header.size = 512
    records = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.name": rng.choice(("sparse", "../evil")),
        "GNU.sparse.realsize": str(2 ** rng.choice((20, 40))),
    }
    header.pax_headers = records
    many = rng.choice((1, 10**7))
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(header, io.BytesIO(f"{many}\n0\n1\n".encode().ljust(512, b"\0")))


# --- places --------------------------------------------------------------------------------------


def name(path: Path, _: Path, rng: random.Random) -> None:
    bad = rng.choice(NAMES)
    try:
        packed(rng, path, good((bad, b"evil")))
    except ValueError:  # that kind cannot hold such a name
        packed(random.Random(1), path, good(("../evil", b"evil")))


def raw_name(path: Path, _: Path, rng: random.Random) -> None:
    """A zip whose two headers do not agree in a name."""
    a_zip(path, *good(("xx/evil", b"evil")))
    data = bytearray(path.read_bytes())
    at = rng.choice((data.index(b"xx/evil"), data.rindex(b"xx/evil")))
    data[at : at + 2] = b".."
    path.write_bytes(data)


def link(path: Path, target: Path, rng: random.Random) -> None:
    """A link in the archive, and a file that goes through it."""
    out = rng.choice(("..", str(target.parent), "../outside", "/"))
    if rng.random() < 0.3:
        info = zipfile.ZipInfo("sub")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        return a_zip(path, *good(), (info, out.encode()), ("sub/evil", b"evil"))
    one = tarfile.TarInfo("sub")
    one.type, one.linkname = rng.choice((tarfile.SYMTYPE, tarfile.LNKTYPE)), out
    return a_tar(path, rng.choice(CODECS), *good(), (one, b""), ("sub/evil", b"evil"))


def device(path: Path, _: Path, rng: random.Random) -> None:
    one = tarfile.TarInfo("null")
    one.type = rng.choice((tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, b"Z", b"V"))
    one.devmajor, one.devminor = 1, 5
    a_tar(path, rng.choice(CODECS), *good(), (one, b""))


def special_mode(path: Path, _: Path, rng: random.Random) -> None:
    """A zip's member that says it is a device or a socket; modes with setuid."""
    info = zipfile.ZipInfo("odd")
    kinds = (stat.S_IFCHR, stat.S_IFBLK, stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFREG | stat.S_ISUID)
    info.external_attr = (rng.choice(kinds) | 0o777) << 16
    a_zip(path, *good(), (info, b"evil"))


def twice(path: Path, _: Path, rng: random.Random) -> None:
    """The same name again: as a file, as a folder, below itself."""
    first, second = rng.choice((("a", "a"), ("a", "a/b"), ("a/b", "a"), ("a", "a/"), ("A", "a")))
    packed(rng, path, good((first, b"1"), (second, b"2")))


def own_folder(path: Path, _: Path, rng: random.Random) -> None:
    """Names that the extraction uses itself."""
    names = (f".{path.name}.extracting/x", f".{path.name}.extracting", f".{path.name}.lock")
    packed(rng, path, good((rng.choice(names), b"evil")))


def file_in_the_way(path: Path, target: Path, rng: random.Random) -> None:
    place = rng.choice((target, target / "images", target / f".{path.name}.extracting"))
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(b"mine")
    packed(rng, path, good())


def link_in_the_way(path: Path, target: Path, rng: random.Random) -> None:
    """A link that stands in the target already, and leads out of it."""
    outside = target.parent / "outside"
    outside.mkdir()
    (outside / "1.jpg").write_bytes(b"mine")
    waiting = f".{path.name}.extracting"
    place = target / rng.choice(("images", "images/deep", "images/1.jpg", waiting, waiting))
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(rng.choice((outside, outside / "1.jpg", outside / "nothing", Path("loop"))))
    packed(rng, path, good())


# --- damage --------------------------------------------------------------------------------------


def damaged(path: Path, _: Path, rng: random.Random) -> None:
    packed(rng, path, good(("text", rng.randbytes(3000))))
    data = bytearray(path.read_bytes())
    for _number in range(rng.choice((1, 3, 30))):
        data[rng.randrange(len(data))] = rng.randrange(256)
    path.write_bytes(data[: rng.choice((len(data), rng.randrange(len(data))))])


def encrypted(path: Path, _: Path, rng: random.Random) -> None:
    a_zip(path, *good())
    data = bytearray(path.read_bytes())
    for sign, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = data.index(sign) + offset
        data[at : at + 4] = rng.choice((b"\x01\0\x08\0", b"\0\0\x63\0", b"\0\0\xff\xff"))
    path.write_bytes(data)


def no_archive(path: Path, _: Path, rng: random.Random) -> None:
    if rng.random() < 0.3:
        os.mkfifo(path) if rng.random() < 0.5 else path.symlink_to("/dev/zero")
    else:
        path.write_bytes(rng.choice((b"", b"<html>", b"PK\x05\x06" + bytes(18), bytes(2**20))))


HARMS: Final[tuple[Harm, ...]] = (
    *(bomb, rest, zip_bomb, lying_size, lying_tar, overlapping, many, many_folders, huge_header),
    *(many_headers, sparse, name, name, name, raw_name, link, device, special_mode, twice),
    *(own_folder, file_in_the_way, link_in_the_way, damaged, damaged, encrypted, no_archive),
)


# --- what comes of it ----------------------------------------------------------------------------


def outside(place: Path, target: Path) -> dict[str, bytes]:
    """All that lies beside the target."""
    return {
        str(path): path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        for path in place.rglob("*")
        if path != target and target not in path.parents and path.name != "archive"
    }


def attack(harm: Harm, place: Path, rng: random.Random) -> tuple[list[str], str, float, float]:
    """What is bad about how it ended; how; seconds and GiB."""
    path, target = place / "archive", place / "target"
    harm(path, target, rng)
    before, there = outside(place, target), {*target.rglob("*")} if target.is_dir() else set()
    end = in_child(lambda: extract(path, target), 3 * SECONDS, 4 * MEMORY)
    bad = [end.kind] if end.kind not in ("result", "sentence") else []
    bad += ["seconds"] * (end.seconds > SECONDS) + ["memory"] * (end.memory > MEMORY)
    bad += ["outside"] * (outside(place, target) != before)
    left = {path for path in target.rglob("*") if not path.name.endswith(".lock")} - there
    bad += ["left behind"] * (end.kind != "result" and bool(left))
    if bad:
        print(f"{harm.__name__}: {', '.join(bad)}: {end.said}", file=sys.stderr)
    return bad, end.kind, end.seconds, end.memory / 2**30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--archives", type=int, default=160)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="harms whose name holds this text")
    options = parser.parse_args()
    harms = [harm for harm in HARMS if not options.only or options.only in harm.__name__]
    ends: defaultdict[str, Counter[str]] = defaultdict(Counter)
    most: defaultdict[str, tuple[float, float]] = defaultdict(lambda: (0.0, 0.0))
    for number in range(options.archives):
        harm = harms[number % len(harms)]
        rng = random.Random(f"{options.seed} {number}")
        with tempfile.TemporaryDirectory() as place:
            bad, kind, seconds, memory = attack(harm, Path(place), rng)
        ends[harm.__name__].update([kind, *(["bad"] if bad else [])])
        was = most[harm.__name__]
        most[harm.__name__] = max(was[0], seconds), max(was[1], memory)
    table = Table("harm", "archives", "extracted", "refused", "bad", "seconds", "GiB")
    for kind, counts in ends.items():
        tried = counts.total() - counts["bad"]
        figures = (tried, counts["result"], counts["sentence"], counts["bad"])
        table.add_row(kind, *map(str, figures), *(f"{one:.1f}" for one in most[kind]))
    Console().print(table)
    failed = sum(counts["bad"] for counts in ends.values())
    print(f"{options.archives} archives, {failed} bad")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
