"""A run: a model's scores on some benchmarks, and every number that is made from them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from counterpoint._util.errors import CounterpointError, RunError
from counterpoint._util.untrusted import shortened
from counterpoint.metrics import RESAMPLES, Protocol, count_reasons, get_protocol
from counterpoint.runs.comparison import Difference, part_differences
from counterpoint.runs.folders import read_folder, write_folder
from counterpoint.runs.part import Part
from counterpoint.runs.results import Row, part_rows
from counterpoint.runs.tables import Comparison, Results, part_size


@dataclass(frozen=True, slots=True, repr=False)
class Run:
    """A model's scores on some benchmarks."""

    model: str
    parts: dict[str, Part]
    manifest: dict[str, Any]
    folder: Path | None = None

    @property
    def left_out(self) -> int:
        """How many cases, and images of galleries, were not scored or are not in the data."""
        return sum(part.missing for part in self.parts.values())

    @property
    def surplus(self) -> int:
        """How many cases are beyond the published benchmarks."""
        return sum(part.surplus for part in self.parts.values())

    def results(
        self,
        *,
        groups: bool = False,
        protocol: str | Protocol | None = None,
        resamples: int = RESAMPLES,
    ) -> Results:
        """Every metric of every benchmark with its interval, and of every group if asked for.

        `protocol` counts the same scores in another way: a tie, an average, an exclusion.
        """
        chosen = None if protocol is None else get_protocol(protocol)
        return results_of([self], chosen, groups=groups, resamples=resamples)

    def compare(
        self,
        other: Run | str | Path,
        *,
        protocol: str | Protocol | None = None,
        resamples: int = RESAMPLES,
        margin: float | None = None,
    ) -> Comparison:
        """This run (A) against another (B), paired case by case. A path is read as a run folder.

        `margin` is a difference that does not matter, in points of per cent: with it, runs whose
        difference lies within it with its whole interval are tied.
        """
        b = load_run(other)
        chosen = None if protocol is None else get_protocol(protocol)
        found = compare(self, b, chosen, resamples=resamples, margin=margin)
        notes = [*left_out_notes(self), *left_out_notes(b)]
        return Comparison(found, self.model, b.model, notes)

    def __repr__(self) -> str:
        parts = self.parts.values()
        counts = ", ".join(map(repr, parts))
        return f"Run({self.model!r}, {counts}, folder={str(self.folder)!r})"

    def _repr_html_(self) -> str:
        """For a notebook: the results."""
        return self.results()._repr_html_()


def load_run(path: str | Path | Run) -> Run:
    """Read a run folder; what is damaged is refused. A run is returned as it is."""
    return path if isinstance(path, Run) else Run(*read_folder(Path(path)))


def save_run(run: Run, folder: Path, *, overwrite: bool = False) -> Run:
    """Write a run folder; it replaces an older run of the same question."""
    manifest = write_folder(folder, run.model, run.parts, run.manifest, overwrite=overwrite)
    return replace(run, manifest=manifest, folder=folder)


def refuse_empty(run: Run) -> None:
    """Raise if not one case was scored: there is no number to show."""
    parts = run.parts.values()
    lost = [one for part in parts for one in (*part.left_out, *part.left_out_images)]
    if lost and not any(len(part.scores) for part in parts):
        case, why = lost[0]
        raise RunError(
            "E-RUN-EMPTY",
            f"{shortened(run.model)}: no case could be scored ({count_reasons(lost)}), so no run "
            "is written, and what the model has computed is kept for the next one; the first case "
            f"is {case!r}: {why}",
        )


def rows(
    run: Run,
    protocol: Protocol | None = None,
    *,
    groups: bool = True,
    resamples: int = RESAMPLES,
    main: bool = False,
) -> list[Row]:
    """Every metric of every benchmark of a run, as `part_rows` has them."""
    return [
        row
        for part in run.parts.values()
        for row in part_rows(
            run.model, part, protocol, groups=groups, resamples=resamples, main=main
        )
    ]


def results_of(
    runs: Sequence[Run],
    protocol: Protocol | None = None,
    *,
    groups: bool = False,
    resamples: int = RESAMPLES,
) -> Results:
    """One table of several runs."""
    found = [row for run in runs for row in rows(run, protocol, groups=groups, resamples=resamples)]
    notes = [note for run in runs for note in left_out_notes(run)]
    return Results(found, notes, part_sizes(runs))


def compare(
    a: Run,
    b: Run,
    protocol: Protocol | None = None,
    *,
    undirected: Collection[str] = (),
    resamples: int = RESAMPLES,
    main: bool = False,
    margin: float | None = None,
) -> list[Difference]:
    """Paired differences on the benchmarks and cases that both runs have.

    Metrics have to have a better side, besides those that `undirected` names. `main` as in `rows`.
    `margin`, in points of per cent, is a difference of shares that does not matter: two runs are
    tied where the whole interval lies within it, and nowhere else.
    """
    if margin is not None and not 0 < margin < 100:
        raise CounterpointError(
            "E-OPTION-INVALID",
            f"a margin of {margin:g} points says nothing; give a number between 0 and 100.",
        )
    shared = [name for name in a.parts if name in b.parts]
    if not shared:
        raise RunError(
            "E-RUNS-DISJOINT",
            f"{a.model} and {b.model} have no benchmark in common: "
            f"{', '.join(a.parts)} against {', '.join(b.parts)}.",
        )
    return [
        difference
        for name in shared
        for difference in part_differences(
            a.parts[name],
            b.parts[name],
            protocol,
            undirected=undirected,
            resamples=resamples,
            main=main,
            margin=margin,
        )
    ]


def left_out_notes(run: Run) -> list[str]:
    """One sentence per benchmark of which not everything was scored, or more than it has, or that
    the model was trained on."""
    lacking = [
        f"{run.model} on {part.benchmark}: {part.missing:,} of the cases and images were left out"
        f"{_reasons(part.left_out or part.left_out_images)}; "
        f"run.parts[{part.benchmark!r}].left_out (or .left_out_images, .absent) names them."
        for part in run.parts.values()
        if part.missing
    ]
    surplus = [
        f"{run.model} on {part.benchmark}: {part.surplus:,} more than published; "
        f"run.parts[{part.benchmark!r}].absent names them."
        for part in run.parts.values()
        if part.surplus
    ]
    seen = [
        f"{run.model} on {part.benchmark}: {part.trained_on}."
        for part in run.parts.values()
        if part.trained_on
    ]
    return lacking + surplus + seen


def part_sizes(runs: Iterable[Run]) -> dict[tuple[str, str], str]:
    """By model and benchmark how much was scored, where it is not the whole benchmark."""
    return {
        (run.model, part.benchmark): size
        for run in runs
        for part in run.parts.values()
        if (size := part_size(part, run.manifest.get("options", {})))
    }


def _reasons(left_out: Sequence[tuple[str, str]]) -> str:
    return f" ({count_reasons(left_out)})" if left_out else ""
