"""`generate`: a stream of captions becomes one pairs file, on all cores, resumable at any time.

The captions are worked on in pieces. A finished piece is a file in the folder `OUT.parts`, and is
not made again after a stop.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, replace
from itertools import chain, islice
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import polars as pl

from counterpoint._util.errors import DataError, reason
from counterpoint._util.processes import (
    DEATHS,
    WorkerFailure,
    check_engine,
    end_with_parent,
    failure,
    ray_cluster,
    starting,
)
from counterpoint._util.progress import Advance, Progress, Quiet
from counterpoint._util.untrusted import shortened
from counterpoint._util.writing import whole_file
from counterpoint.generation.drafts import (
    CAPTIONS,
    MADE,
    Counts,
    DraftChecker,
    MadePairs,
    TextSettings,
    is_model,
    make_by_rules,
    open_ranker,
    readable,
    seed_of,
)
from counterpoint.generation.inputs.captions import Captions, SourceCaption
from counterpoint.generation.language.lexicon import Vocabulary
from counterpoint.generation.language.words import version as language_version
from counterpoint.generation.pairs import (
    Draft,
    Kind,
    Pair,
    Rejection,
    read_about,
    read_pairs,
    require_parquet,
    reserved,
    tabulate,
    write_pairs,
)

if TYPE_CHECKING:
    from counterpoint.generation.llm import ChatMethod

REPEATED: Final = "duplicate: made before"
PIECE: Final = 1000  # captions
_RULES: Final = "rules"
_AHEAD: Final = 2  # pieces that wait per process
_ASKED: Final = 64  # captions that a language model is asked about at a time: one step of the bar
_SETTINGS: Final = "settings.json"


class Parts:
    """The folder `OUT.parts` beside a file that is being made. `about` says how it is made."""

    def __init__(self, out: Path, about: Mapping[str, Any]) -> None:
        self.folder = out.with_name(f"{out.name}.parts")
        self.pieces = 0
        wanted = json.loads(json.dumps(about, sort_keys=True))
        path = self.folder / _SETTINGS
        try:
            if not path.is_file():
                with whole_file(path) as draft:
                    draft.write_text(json.dumps(wanted, indent=1), encoding="utf-8")
            settings = json.loads(path.read_bytes())
            same = {k: settings.get(k) == wanted.get(k) for k in {**settings, **wanted}}
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

    def missing(
        self, captions: Captions, name: str, advance: Advance
    ) -> Iterator[tuple[list[SourceCaption], Path]]:
        """The pieces of the captions that a method has still to work on, and where they go."""
        stream, self.pieces = iter(captions), 0
        while piece := list(islice(stream, PIECE)):
            path = self.path(name, self.pieces)
            self.pieces += 1
            if path.is_file():
                advance(len(piece))
            else:
                yield piece, path

    def frames(self, names: list[str], counts: Counts) -> Iterator[pl.DataFrame]:
        """The rows of all parts, in the order of the input.

        A text that two methods made from one caption is kept once; `counts` is corrected.
        """
        for number in range(self.pieces):
            paths = [self.path(name, number) for name in names]
            piece = pl.concat([tabulate([]), *(read_pairs(path, rejected=True) for path in paths)])
            first = pl.struct("source", "text", "refused").is_first_distinct()
            again = piece.select(~first & (pl.col("refused") == "")).to_series()
            for method in piece.filter(again)["method"]:
                counts[method, MADE] -= 1
                counts[method, REPEATED] += 1
            yield piece.filter(~again)

    def counts(self, names: list[str]) -> Counts:
        """The sum of the counts of all parts. Captions are counted once, not once per method."""
        total: Counts = Counter()
        for name in names:
            for number in range(self.pieces):
                part = read_counts(read_about(self.path(name, number)))
                total += Counter(
                    {k: n for k, n in part.items() if k[0] != CAPTIONS or name == names[0]}
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

    @classmethod
    def of(cls, rows: int, counts: Counts) -> Generated:
        """The captions are those that are counted."""
        return cls(rows, sum(n for (what, _), n in counts.items() if what == CAPTIONS), +counts)


class Offer(NamedTuple):
    """Texts of a caption that were made elsewhere."""

    source: SourceCaption
    kind: Kind
    drafts: Sequence[Draft | Rejection]
    method: str
    version: str


def write_offers(
    offers: Iterable[Offer],
    settings: TextSettings,
    out: Path,
    about: Mapping[str, Any],
    counts: Counts,
) -> Generated:
    """Write the pairs file `out` of the texts that pass the checks."""
    stream = iter(offers)

    def frames() -> Iterator[pl.DataFrame]:
        while piece := list(islice(stream, PIECE)):
            pairs: list[Pair] = []
            for source, kind, drafts, method, version in piece:
                checker = DraftChecker(source, replace(settings, kind=kind), counts)
                for draft in drafts:
                    pairs += checker.accepted([draft], method, version)
            yield tabulate(pairs)

    with reserved(out):
        rows = write_pairs(out, frames(), lambda: with_counts(about, counts))
    return Generated.of(rows, counts)


def generate(
    captions: Captions,
    settings: TextSettings,
    out: Path,
    *,
    writers: Sequence[ChatMethod] = (),
    workers: int | None = None,
    engine: str = "local",
    ray_address: str = "local",
    progress: Progress | None = None,
) -> Generated:
    """Make the pairs file `out`. After a stop of any kind, the same call resumes.

    `settings.methods` are rules, made by `workers` processes of this machine (by default one per
    core) or, with the engine `ray`, of a cluster; `writers` are methods of language models, called
    one after another.
    """
    shown = progress or Quiet()
    if engine != "local":
        check_engine(engine)
    require_parquet(out)  # now, not after all the work
    about = _about(captions, settings, writers, _words(settings))
    with reserved(out):
        if out.exists():
            return _made_before(out, about)
        parts = Parts(out, about)
        if settings.methods:
            advance = shown.start(_RULES, captions.total)
            missing = parts.missing(captions, _RULES, advance)
            first = list(islice(missing, 2))
            missing = chain(first, missing)
            alone = engine == "local" and (workers or os.cpu_count() or 1) == 1
            model = settings.kind == "negative" and is_model(settings.plausible)
            if len(first) < 2 or alone or model:  # a model is loaded once
                for piece, path in missing:
                    write_part(path, *make_by_rules(piece, settings))
                    advance(len(piece))
            else:
                _by_workers(missing, settings, advance, _pool(workers, engine, ray_address))
        for writer in writers:
            advance = shown.start(writer.name, captions.total)
            for piece, path in parts.missing(captions, writer.name, advance):
                write_part(path, *_by_writer(piece, settings, writer, advance))
        names = [_RULES] * bool(settings.methods) + [writer.name for writer in writers]
        counts = parts.counts(names)
        frames = parts.frames(names, counts)
        rows = write_pairs(out, frames, lambda: with_counts(about, counts))
        parts.remove()
    return Generated.of(rows, counts)


def _about(
    captions: Captions,
    settings: TextSettings,
    writers: Sequence[ChatMethod],
    versions: tuple[str, str, str],
) -> dict[str, Any]:
    words, language, plausibility = versions
    return {
        "input": captions.name,
        "fingerprint": captions.fingerprint,
        "root": str(captions.root.absolute()) if captions.root else None,
        **{key: value for key, value in asdict(settings).items() if key != "methods"},
        "methods": [*settings.methods, *(writer.name for writer in writers)],
        "versions": {writer.name: writer.version for writer in writers},
        "origin": {writer.name: writer.origin for writer in writers},
        "words": words,
        "language": language,
        **({"plausibility": plausibility} if plausibility else {}),
    }


def _words(settings: TextSettings) -> tuple[str, str, str]:
    """The versions of everything that rules look up."""
    ranker = open_ranker(settings.ranking)
    words = Vocabulary(settings.doubtful).version
    return words, language_version(), ranker.version if ranker else ""


def _made_before(out: Path, about: dict[str, Any]) -> Generated:
    """A finished file is not made again, and is never overwritten."""
    import pyarrow.parquet as pq  # slow to import

    before = read_about(out)
    if {key: value for key, value in before.items() if key != "counts"} != about:
        raise DataError(
            "E-OUTPUT-EXISTS",
            f"{out} exists and was made with other settings; name another -o or remove it.",
        )
    return Generated.of(int(pq.read_metadata(out).num_rows), read_counts(before))


def _by_writer(
    piece: list[SourceCaption], settings: TextSettings, writer: ChatMethod, advance: Advance
) -> MadePairs:
    """A piece by a language model, whose answers are stored: they are never paid for twice."""
    counts: Counts = Counter()
    pairs: list[Pair] = []
    for start in range(0, len(piece), _ASKED):
        some = piece[start : start + _ASKED]
        kept = readable(some, counts)
        seeds = [seed_of(settings.seed, writer.name, source) for source in kept]
        answers = writer.make([source.caption for source in kept], seeds)
        for source, drafts in zip(kept, answers, strict=True):
            checker = DraftChecker(source, settings, counts)
            pairs += checker.accepted(drafts, writer.name, writer.version)
        advance(len(some))
    return MadePairs(pairs, counts)


# --- workers --------------------------------------------------------------------------------------

# Begins a part in another process; the most parts that may be begun come with it.
Submit = Callable[..., "Future[WorkerFailure | None]"]
Pool = AbstractContextManager[tuple[Submit, int]]


def _by_workers(
    missing: Iterable[tuple[list[SourceCaption], Path]],
    settings: TextSettings,
    advance: Advance,
    pool: Pool,
) -> None:
    """Pieces by rules in other processes, not many more at a time than there are processes."""
    waiting: dict[Future[WorkerFailure | None], int] = {}
    words = _words(settings)

    def take() -> None:
        done, _ = wait(waiting, return_when=FIRST_COMPLETED)
        for job in done:
            size = waiting.pop(job)
            if failed := job.result():
                raise failed.error()
            advance(size)

    with pool as (submit, ahead):
        for piece, path in missing:
            while len(waiting) >= ahead:
                take()
            waiting[submit(words, piece, settings, path.absolute())] = len(piece)
        while waiting:
            take()


def _rules_part(
    words: tuple[str, ...], sources: list[SourceCaption], settings: TextSettings, path: Path
) -> WorkerFailure | None:
    """A part by a worker, which has to see the same folder and the same words."""
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
                "than this machine; install the same packages.",
            )
        write_part(path, *make_by_rules(sources, settings))
    except Exception as error:
        return failure(error)
    return None


@contextmanager
def _pool(workers: int | None, engine: str, address: str) -> Iterator[tuple[Submit, int]]:
    """Tasks of Ray, which repeats those whose worker died; or processes of this machine."""
    if engine == "ray":
        with ray_cluster(address, workers) as ray:
            task = ray.remote(_rules_part).options(num_cpus=1, max_retries=DEATHS)
            cores = int(ray.cluster_resources().get("CPU", 1))
            try:
                yield lambda *part: task.remote(*part).future(), workers or _AHEAD * cores
            except ray.exceptions.RayError:
                raise _died("fewer --workers need less memory") from None
        return
    count = workers or os.cpu_count() or 1
    # They are spawned: forking copies locks that other threads hold.
    pool = ProcessPoolExecutor(count, get_context("spawn"), initializer=end_with_parent)

    def submit(*part: Any) -> Future[WorkerFailure | None]:
        with starting():  # the first parts start the processes
            return pool.submit(_rules_part, *part)

    try:
        yield submit, _AHEAD * count
    except BaseException as error:
        pool.shutdown(wait=True, cancel_futures=True)
        if isinstance(error, BrokenProcessPool):
            raise _died("--workers 1 needs the least memory") from None
        raise
    pool.shutdown()


def _without_torch() -> None:
    """spaCy imports torch if it is installed, but tags without it: that saves three seconds and
    400 MB per process."""
    sys.modules.setdefault("torch", None)  # type: ignore[arg-type]


def _died(less: str) -> DataError:
    return DataError(
        "E-WORKER-DIED",
        "a worker process died, probably out of memory; run the same command again to continue "
        f"({less}).",
    )
