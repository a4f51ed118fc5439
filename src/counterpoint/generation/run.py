"""`generate`: a stream of captions becomes one pairs file, on all cores, resumable at any time.

The captions are worked on in pieces. A finished piece is a file in the folder `OUT.parts`, and is
not made again after a stop.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final, NamedTuple

import polars as pl

from counterpoint._util.children import DEATHS, WorkerFailure, end_with_parent, failure, starting
from counterpoint._util.cluster import check_engine, ray_cluster
from counterpoint._util.errors import DataError, reason
from counterpoint._util.progress import Advance, Progress, Quiet
from counterpoint._util.untrusted import shortened
from counterpoint._util.writing import whole_file
from counterpoint.generation.inputs.captions import Captions
from counterpoint.generation.inputs.source import SourceCaption
from counterpoint.generation.language.sentences import version as language_version
from counterpoint.generation.making import (
    CAPTIONS,
    MADE,
    DraftChecker,
    MadePairs,
    TextSettings,
    make_by_rules,
    readable,
    seed_of,
)
from counterpoint.generation.pairs import (
    Pair,
    read_about,
    read_pairs,
    require_parquet,
    reserved,
    tabulate,
    write_pairs,
)
from counterpoint.generation.ranking import is_model
from counterpoint.generation.registry import BatchMethod

Counts = Counter[tuple[str, str]]  # by (method or `captions`, `made` or the reason why not)
REPEATED: Final = "duplicate: made before"

PIECE: Final = 1000  # captions
_RULES: Final = "rules"
_AHEAD: Final = 2  # pieces that wait per process
_ASKED: Final = 64  # captions per call of a batch method: the progress bar moves this often
_ENDING: Final = ".parts"
_SETTINGS: Final = "settings.json"


class Parts:
    """The folder `OUT.parts` beside a file that is being made. `about` says how it is made."""

    def __init__(self, out: Path, about: Mapping[str, Any]) -> None:
        self.folder = out.with_name(out.name + _ENDING)
        self.about = json.loads(json.dumps(about, sort_keys=True))
        path = self.folder / _SETTINGS
        try:
            if not path.is_file():
                with whole_file(path) as draft:
                    draft.write_text(json.dumps(self.about, indent=1), encoding="utf-8")
            found = json.loads(path.read_bytes())
            same = {k: found.get(k) == self.about.get(k) for k in {**found, **self.about}}
        except OSError as error:
            raise DataError(
                "E-FILE-UNREADABLE", f"{path}: cannot be used: {reason(error)}."
            ) from None
        except (ValueError, TypeError, AttributeError, RecursionError):
            raise DataError(
                "E-FILE-MALFORMED", f"{path}: cannot be used; remove {self.folder}."
            ) from None
        if not all(same.values()):
            other = next(key for key, value in same.items() if not value)
            raise DataError(
                "E-SETTINGS-CHANGED",
                f"{self.folder} holds work begun with another {shortened(other)}; "
                "finish that first, name another -o, or remove the folder.",
            )

    def path(self, name: str, number: int) -> Path:
        return self.folder / f"{number:06d}-{name.replace('/', '-')}.parquet"

    def done(self, name: str, number: int) -> bool:
        return self.path(name, number).is_file()

    def frames(self, names: list[str], count: int, counts: Counts) -> Iterator[pl.DataFrame]:
        """The rows of all parts, in the order of the input.

        A text that two methods made from one caption is kept once; `counts` is corrected.
        """
        for number in range(count):
            paths = [self.path(name, number) for name in names]
            piece = pl.concat(
                [tabulate([]), *(f for path in paths for f in read_pairs(path, rejected=True))]
            )
            first = pl.struct("source", "text", "refused").is_first_distinct()
            again = piece.select(~first & (pl.col("refused") == "")).to_series()
            for method in piece.filter(again)["method"]:
                counts[method, MADE] -= 1
                counts[method, REPEATED] += 1
            yield piece.filter(~again)

    def counts(self, names: list[str], count: int) -> Counts:
        """The sum of the counts of all parts. Captions are counted once, not once per method."""
        total: Counts = Counter()
        for name in names:
            for number in range(count):
                found = read_counts(read_about(self.path(name, number)))
                total += Counter(
                    {k: n for k, n in found.items() if k[0] != CAPTIONS or name == names[0]}
                )
        return total

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def write_part(path: Path, pairs: list[Pair], counts: Counts) -> None:
    """Write a part and its counts into one file, so that neither exists without the other."""
    write_pairs(path, [tabulate(pairs)], with_counts({}, counts))


def with_counts(about: Mapping[str, Any], counts: Counts) -> dict[str, Any]:
    """The metadata of a file, with the counts as JSON."""
    rows = [[what, reason, number] for (what, reason), number in sorted(counts.items()) if number]
    return {**about, "counts": rows}


def read_counts(about: Mapping[str, Any]) -> Counts:
    return Counter({(what, reason): number for what, reason, number in about.get("counts", [])})


class Generated(NamedTuple):
    """What went into a pairs file. `counts` are by (method, `made` or the reason why not)."""

    rows: int
    captions: int
    counts: Counts


def generate(
    captions: Captions,
    settings: TextSettings,
    out: Path,
    *,
    writers: Sequence[BatchMethod] = (),
    workers: int | None = None,
    engine: str = "local",
    ray_address: str = "local",
    progress: Progress | None = None,
) -> Generated:
    """Make the pairs file `out`. After a stop of any kind, the same call resumes.

    `settings.methods` are rules, made by `workers` processes of this machine or, with the engine
    `ray`, of a cluster; `writers` are other methods, called one after another.
    """
    shown = progress or Quiet()
    check_engine(engine)
    require_parquet(out)  # now, not after all the work
    about = _about(captions, settings, writers)
    with reserved(out):
        if out.exists():
            return _made_before(out, about)
        parts = Parts(out, about)
        names = [_RULES] * bool(settings.methods) + [writer.name for writer in writers]
        pieces = 0
        if settings.methods:
            place = RulesPlace(workers, engine, ray_address)
            pieces = _by_rules(captions, settings, parts, place, shown)
        for writer in writers:
            pieces = _by_writer(captions, settings, writer, parts, shown)
        counts = parts.counts(names, pieces)
        frames = parts.frames(names, pieces, counts)
        written = write_pairs(out, frames, lambda: with_counts(about, counts))
        parts.remove()
    return Generated(written, _captions(counts), +counts)


def _captions(counts: Counts) -> int:
    return sum(number for (what, _), number in counts.items() if what == CAPTIONS)


def _about(
    captions: Captions, settings: TextSettings, writers: Sequence[BatchMethod]
) -> dict[str, Any]:
    return {
        "input": captions.name,
        "fingerprint": captions.fingerprint,
        "root": str(captions.root.absolute()) if captions.root else None,
        **{key: value for key, value in asdict(settings).items() if key != "methods"},
        "methods": [*settings.methods, *(writer.name for writer in writers)],
        "versions": {writer.name: writer.version for writer in writers},
        "origin": {writer.name: writer.origin for writer in writers},
        "words": settings.vocabulary().version,
        "language": language_version(),
        **({"plausibility": ranker.version} if (ranker := settings.ranker()) else {}),
    }


def _made_before(out: Path, about: dict[str, Any]) -> Generated:
    """A finished file is not made again, and is never overwritten."""
    import pyarrow.parquet as pq  # slow to import

    found = read_about(out)
    if {key: value for key, value in found.items() if key != "counts"} != about:
        raise DataError(
            "E-OUTPUT-EXISTS",
            f"{out} exists and was made with other settings; name another -o or remove it.",
        )
    counts = read_counts(found)
    return Generated(int(pq.read_metadata(out).num_rows), _captions(counts), counts)


def _pieces(captions: Captions) -> Iterator[tuple[int, list[SourceCaption]]]:
    stream = iter(captions)
    number = 0
    while piece := list(islice(stream, PIECE)):
        yield number, piece
        number += 1


class RulesPlace(NamedTuple):
    """Where rules work: in processes of this machine, or as tasks on a cluster of Ray."""

    workers: int | None = None  # by default one per core
    engine: str = "local"
    address: str = "local"


def _by_rules(
    captions: Captions, settings: TextSettings, parts: Parts, place: RulesPlace, shown: Progress
) -> int:
    """Every piece by all rules; returns how many pieces there are.

    A blind model that ranks is loaded once, in this process.
    """
    advance = shown.start("rules", captions.total)
    waiting: dict[Future[WorkerFailure | None], int] = {}
    count = 0
    few = captions.total is not None and captions.total <= PIECE
    alone = few or (settings.kind == "negative" and is_model(settings.plausible))
    with _pool(RulesPlace(1) if alone else place, settings) as (submit, ahead):
        for number, piece in _pieces(captions):
            count += 1
            path = parts.path(_RULES, number).absolute()
            if parts.done(_RULES, number):
                advance(len(piece))
                continue
            if submit is None:
                _rules_part(piece, settings, path)
                advance(len(piece))
                continue
            while len(waiting) >= ahead:
                _take(waiting, advance)
            waiting[submit(piece, settings, path)] = len(piece)
        while waiting:
            _take(waiting, advance)
    return count


def _take(waiting: dict[Future[WorkerFailure | None], int], advance: Advance) -> None:
    done, _ = wait(waiting, return_when=FIRST_COMPLETED)
    for job in done:
        size = waiting.pop(job)
        if failed := job.result():
            raise failed.error()
        advance(size)


def _rules_part(sources: list[SourceCaption], settings: TextSettings, path: Path) -> None:
    with _no_collection():
        made = make_by_rules(sources, settings)
        write_part(path, made.pairs, made.counts)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Rules leave no cycles behind, and the collector would walk through all words and counts, a
    tenth of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


# --- elsewhere -----------------------------------------------------------------------------------

# Begins a part in another process. The most parts that may be begun come with it.
Submit = Callable[[list[SourceCaption], TextSettings, Path], "Future[WorkerFailure | None]"]


@contextmanager
def _pool(place: RulesPlace, settings: TextSettings) -> Iterator[tuple[Submit | None, int]]:
    """Without a function, parts are made here."""
    workers = place.workers or os.cpu_count() or 1
    if place.engine == "ray":
        with _ray_pool(place, settings) as found:
            yield found
    elif workers == 1:
        yield None, 0
    else:
        with _process_pool(workers) as pool:

            def submit(*part: Any) -> Future[WorkerFailure | None]:
                with starting():  # the first parts start the processes
                    return pool.submit(_rules_part, *part)

            yield submit, _AHEAD * workers


@contextmanager
def _process_pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Worker processes. They are spawned: forking copies locks that other threads hold."""
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_begin)
    try:
        yield pool
    except BaseException as error:
        pool.shutdown(wait=True, cancel_futures=True)
        if isinstance(error, BrokenProcessPool):
            raise _died("--workers 1 needs the least memory") from None
        raise
    pool.shutdown()


def _begin() -> None:
    _without_torch()
    end_with_parent()


def _without_torch() -> None:
    """spaCy imports torch if it is installed, but tags without it: that saves three seconds and
    400 MB per process."""
    sys.modules.setdefault("torch", None)  # type: ignore[arg-type]


@contextmanager
def _ray_pool(place: RulesPlace, settings: TextSettings) -> Iterator[tuple[Submit, int]]:
    """Tasks of Ray, which repeats those whose worker died."""
    with ray_cluster(place.address, place.workers) as ray:
        task = ray.remote(_ray_part).options(num_cpus=1, max_retries=DEATHS)
        words = _words(settings)

        def submit(*part: Any) -> Future[WorkerFailure | None]:
            found: Future[WorkerFailure | None] = task.remote(words, *part).future()
            return found

        cores = int(ray.cluster_resources().get("CPU", 1))
        try:
            yield submit, place.workers or _AHEAD * cores
        except ray.exceptions.RayError:
            raise _died("fewer --workers need less memory") from None


def _ray_part(
    words: tuple[str, ...], sources: list[SourceCaption], settings: TextSettings, path: Path
) -> WorkerFailure | None:
    """A part by another machine, which has to see the same folder and the same words."""
    _without_torch()
    try:
        if not (path.parent / _SETTINGS).is_file():
            raise DataError(
                "E-FOLDER-MISSING",
                f"{path.parent}: a worker on {platform.node()} does not see this folder; choose an "
                "output on a file system that all machines of the cluster share.",
            )
        if _words(settings) != words:
            raise DataError(
                "E-WORKERS-DIFFER",
                f"a worker on {platform.node()} has other word lists or another language model "
                "than this machine; install the same packages, or use --no-wordnet.",
            )
        _rules_part(sources, settings, path)
    except Exception as error:
        return failure(error)
    return None


def _words(settings: TextSettings) -> tuple[str, ...]:
    """The versions of everything that rules look up."""
    ranker = settings.ranker()
    return settings.vocabulary().version, language_version(), ranker.version if ranker else ""


def _died(less: str) -> DataError:
    return DataError(
        "E-WORKER-DIED",
        "a worker process died, probably out of memory; run the same command again to continue "
        f"({less}).",
    )


def _by_writer(
    captions: Captions, settings: TextSettings, writer: BatchMethod, parts: Parts, shown: Progress
) -> int:
    """Every piece by one batch method; returns the number of pieces.

    The method itself stores its answers, so an interrupted piece is not paid for twice.
    """
    advance = shown.start(writer.name, captions.total)
    count = 0
    for number, piece in _pieces(captions):
        count += 1
        path = parts.path(writer.name, number)
        if path.is_file():
            advance(len(piece))
        else:
            made = _written(piece, settings, writer, advance)
            write_part(path, made.pairs, made.counts)
    return count


def _written(
    piece: list[SourceCaption], settings: TextSettings, writer: BatchMethod, advance: Advance
) -> MadePairs:
    counts: Counter[tuple[str, str]] = Counter()
    pairs: list[Pair] = []
    wordnet = settings.vocabulary().wordnet
    for start in range(0, len(piece), _ASKED):
        some = piece[start : start + _ASKED]
        kept = readable(some, counts)
        seeds = [seed_of(settings.seed, writer.name, source) for source in kept]
        answers = writer.make([source.caption for source in kept], seeds, Quiet())
        for source, drafts in zip(kept, answers, strict=True):
            checker = DraftChecker(source, settings, counts, wordnet)
            pairs += checker.accepted(iter(drafts), writer.name, writer.version)
        advance(len(some))
    return MadePairs(pairs, counts)
