"""Runs and their numbers: `counterpoint eval`, `rescore`, `import` and `verify`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from counterpoint._util.errors import RunError
from counterpoint.cli.console import (
    AllowMissing,
    AsJson,
    BatchSizeOrAuto,
    Benchmarks,
    Clean,
    DataFolder,
    Device,
    Groups,
    Limit,
    Overwrite,
    ProtocolName,
    RayAddress,
    errors,
    output,
    print_json,
    progress_bars,
    remark,
    say,
    warn,
)

if TYPE_CHECKING:
    from counterpoint._util.progress import Progress
    from counterpoint.evaluation import Check, Flips
    from counterpoint.models import LoadOptions
    from counterpoint.runs import Run, Sheet


def evaluate(
    model: Annotated[
        list[str], typer.Option("-m", "--model", help="Model id; repeat for several.")
    ],
    benchmark: Benchmarks,
    data: DataFolder = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the run; of several models, one sub-folder each. Default: in runs/."
        ),
    ] = None,
    limit: Limit = None,
    protocol: ProtocolName = None,
    batch_size: BatchSizeOrAuto = "auto",
    device: Device = "auto",
    precision: Annotated[
        str,
        typer.Option(
            help="fp32, tf32, bf16, fp16, or auto: on a GPU the fastest that changes the verdicts "
            "of at most 0.2 % of a sample of the cases. Scores are computed in float32."
        ),
    ] = "fp32",
    decode: Annotated[
        str,
        typer.Option(
            help="exact (Pillow), gpu (JPEGs on an NVIDIA GPU: faster, slightly other pixels), or "
            "auto: gpu if verdicts stay, as with --precision auto."
        ),
    ] = "exact",
    devices: Annotated[
        str, typer.Option(help="Several devices, a process each: 0,1 or all or cpu,cpu.")
    ] = "",
    engine: Annotated[str, typer.Option(help="local, or ray: on a cluster.")] = "local",
    ray_address: RayAddress = "local",
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Workers on Ray. Default: one per GPU, else one per CPU."),
    ] = None,
    check_precision: Annotated[
        bool,
        typer.Option(
            "--check-precision",
            help="Score a sample of the cases in fp32, too, and count changed verdicts.",
        ),
    ] = False,
    trust_remote_code: Annotated[
        bool,
        typer.Option(
            "--trust-remote-code",
            help="Run Python code that comes with the named models. The code can do anything that "
            "you can do on this machine: read it first. Recorded in the run.",
        ),
    ] = False,
    clean: Clean = False,
    groups: Groups = False,
    overwrite: Overwrite = False,
    allow_missing: AllowMissing = False,
    as_json: AsJson = False,
) -> None:
    """Evaluate models on benchmarks: print one table and keep every raw score.

    Examples:

    counterpoint eval -m world:base -m blind:length -b world-swap -b world-replace

    counterpoint eval -m open_clip:local-dir:my-model -b my_cases.jsonl --out runs/mine

    counterpoint eval -m world:base -b world-swap --devices cpu,cpu --precision auto

    counterpoint eval -m random -b world-bi:size=500,seed=7 --json > rows.json

    After an interruption the same command continues where it stopped.
    """
    from counterpoint.cli.tables import report_left_out, show_results
    from counterpoint.evaluation import evaluate as run_evaluation, with_clean
    from counterpoint.models import LoadOptions

    with progress_bars() as bars:
        runs = run_evaluation(
            model,
            benchmark,
            data=data,
            out=out,
            limit=limit,
            protocol=protocol,
            batch_size="auto" if batch_size == "auto" else int(batch_size),
            device=device,
            precision=precision,
            decode=decode,
            devices=devices,
            engine=engine,
            ray_address=ray_address,
            workers=workers,
            trust_remote_code=trust_remote_code,
            overwrite=overwrite,
            progress=bars,
        )
        options = LoadOptions(device, precision, trust_remote_code, decode)
        flips = _flips(runs, options, bars) if check_precision else []
    show_results(with_clean(runs) if clean else runs, groups=groups, as_json=as_json)
    for run in runs if not as_json else []:
        say(f"saved {run.folder}")
    for note in (n for run in runs for n in run.manifest["model_info"].get("notes", ())):
        warn(f"note: {note}")
    for flip in flips:
        remark(
            f"{flip.model} on {flip.benchmark}: {flip.precision} changes {flip.flipped:,} of "
            f"{flip.verdicts:,} verdicts of a sample against fp32; scores differ by at most "
            f"{flip.largest:.1e}"
        )
    report_left_out(runs, allow_missing)


def _flips(runs: list[Run], options: LoadOptions, bars: Progress) -> list[Flips]:
    from counterpoint.evaluation import check_precision

    return [
        flip
        for run in runs
        for flip in check_precision(
            run.model,
            {
                name: (part.cases, part.protocol)
                for name, part in run.parts.items()
                if not name.startswith("probe/")  # its scores are not those of its captions
            },
            options,
            progress=bars,
        )
    ]


# --- from stored scores, and from those of another program ---------------------------------------


def rescore(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, or folders of run folders.")],
    protocol: ProtocolName = None,
    clean: Clean = False,
    groups: Groups = False,
    averages: Annotated[
        bool,
        typer.Option("--averages", help="Also show the micro and macro averages side by side."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compute all metrics again from the raw scores of runs, without model, images or data set.

    Examples:

    counterpoint rescore runs/demo

    counterpoint rescore runs/demo/world-base --protocol strict --averages
    """
    from counterpoint.api import load_runs
    from counterpoint.cli.tables import averages_table, left_out_lines, show_results
    from counterpoint.evaluation import with_clean
    from counterpoint.metrics import get_protocol
    from counterpoint.runs import fitting, side_by_side

    with errors.status("reading runs"):
        loaded = load_runs(runs)
        loaded = with_clean(loaded) if clean else loaded
        chosen = get_protocol(protocol) if protocol else None
    if not any(len(part.cases) for run in loaded for part in run.parts.values()):
        raise RunError(
            "E-RUN-EMPTY",
            f"{', '.join(str(run.folder) for run in loaded)}: no case was scored, so there is no "
            "number; run.json says why.",
        )
    show_results(loaded, groups=groups, as_json=as_json, protocol=chosen)
    if as_json:
        return
    for line in left_out_lines(loaded):
        warn(line)
    for run in loaded if averages else []:
        for part in filter(lambda part: len(part.cases), run.parts.values()):
            used = fitting(part, chosen)
            with errors.status("resampling"):
                found = side_by_side(part, chosen)
            output.print(averages_table(part.benchmark, run.model, found, used))


def import_scores(
    file: Annotated[
        Path,
        typer.Argument(
            help="A .csv, .tsv, .jsonl or .parquet: case_id, image, caption, score; "
            "or case_id, C0I0, C0I1, C1I0, C1I1 (caption and image), also as .txt."
        ),
    ],
    benchmark: Annotated[str, typer.Option("-b", "--benchmark", help="Benchmark id or case file.")],
    name: Annotated[str, typer.Option("--name", help="Name of the model.")],
    data: DataFolder = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run. Default: in runs/.")] = None,
    protocol: ProtocolName = None,
    overwrite: Overwrite = False,
    groups: Groups = False,
    allow_missing: AllowMissing = False,
    as_json: AsJson = False,
) -> None:
    """Make a run from scores that were computed elsewhere, without model or images.

    image and caption count from 0 within the case; docs/benchmarks/index.md has the case ids.

    Example:

    counterpoint import scores.csv -b sugarcrepe --name my-model --data my-data --out runs/mine
    """
    from counterpoint.cli.tables import report_left_out, show_results
    from counterpoint.evaluation import import_scores as make_run

    with errors.status("reading scores"):
        run = make_run(
            file, benchmark, name, data=data, out=out, protocol=protocol, overwrite=overwrite
        )
    show_results([run], groups=groups, as_json=as_json)
    if not as_json:
        say(f"saved {run.folder}")
    report_left_out([run], allow_missing)


# --- verify -----------------------------------------------------------------------------------


NOT_CONFIRMED: Final = 4  # the exit status of --strict
_CONFIRMED: Final = ("same to the digit", "within the interval")
_COUNTED: Final = {
    "same to the digit": "same to the digit",
    "within the interval": "within the interval",
    "differs": "differ",
    "cannot be compared": "cannot be compared",
    "no value": "without a published value",
}
_STYLES: Final = {
    "same to the digit": "green",
    "within the interval": "green",
    "differs": "red",
    "cannot be compared": "yellow",
    "no value": "dim",
}


def verify(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    model: Annotated[
        str | None,
        typer.Option("--as", help="The published model to compare with, by name or model id."),
    ] = None,
    groups: Annotated[
        bool, typer.Option("--groups", help="Also show groups without a published value.")
    ] = False,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Exit with status 4 unless there are published values and all are confirmed.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compare a run's numbers with the published ones.

    Verdicts: same to the digit; within the interval (the published value, give or take its
    rounding, lies within our 95% interval); differs; cannot be compared (the run is not of the
    whole benchmark, or was scored under another protocol).

    Examples:

    counterpoint verify runs/clip

    counterpoint verify runs/mine --as "NegCLIP" --strict --json
    """
    from counterpoint.evaluation import verify as check_run
    from counterpoint.metrics import ALL
    from counterpoint.runs import as_json as plain, load_run

    with errors.status("resampling"):
        loaded = load_run(run)
        found = check_run(loaded, model)
    if as_json:
        print_json(plain(found))
    else:
        shown = [c for c in found if groups or c.published is not None or c.group == ALL]
        _print_checks(loaded.model, shown)
    for line in _warnings(loaded, model, found):
        warn(line)
    beside = [c for c in found if c.published is not None]
    if strict and not (beside and all(c.verdict in _CONFIRMED for c in beside)):
        raise typer.Exit(NOT_CONFIRMED)


def _print_checks(model: str, shown: list[Check]) -> None:
    for benchmark in dict.fromkeys(c.benchmark for c in shown):
        output.print(_checks_table(model, [c for c in shown if c.benchmark == benchmark]))
    for note in dict.fromkeys(f"{c.source}: {c.note}" for c in shown if c.note):
        output.print(note, style="dim", soft_wrap=True)
    lines = {(c.benchmark, c.group, c.metric, c.average, c.published): c.verdict for c in shown}
    counts: Counter[str] = Counter(lines.values())
    output.print(", ".join(f"{counts[verdict]} {said}" for verdict, said in _COUNTED.items()))


def _warnings(run: Run, model: str | None, found: list[Check]) -> Iterator[str]:
    """What a reader of the verdicts must know."""
    from counterpoint.evaluation import half_precision, near_models, not_the_model, tied_captions

    if model is not None and (why := not_the_model(run, model)):
        yield f"Note: {why}."
    for why in filter(None, (half_precision(run, found), tied_captions(found))):
        yield f"Note: {why}."
    yield from dict.fromkeys(f"{c.benchmark} cannot be compared: {c.why}" for c in found if c.why)
    if not any(c.published is not None for c in found):
        name = model or run.model
        close = ", ".join(repr(other) for other in near_models(name, run)[:3] if other != name)
        hint = f" There are values of {close}." if close else ""
        yield (
            f"Nothing is published of {name!r} on these benchmarks; --as names another model of "
            f"published.csv.{hint}"
        )


def _checks_table(model: str, found: list[Check]) -> Sheet:
    from counterpoint.metrics import METRIC_HEADINGS
    from counterpoint.runs import Sheet

    theirs = ", ".join(dict.fromkeys(c.model for c in found if c.model))
    title = f"{model} on {found[0].benchmark}" + (f" beside {theirs}" if theirs else "")
    names = dict.fromkeys(("group", "metric", "average"), "name")
    numbers = dict.fromkeys(("ours", "cases", "published"), "number")
    sheet = Sheet({**names, **numbers, "verdict": "word", "source": "name"}, title)
    for check, sources in _merged(found):
        sheet.add(
            check.group,
            METRIC_HEADINGS.get(check.metric, check.metric),
            check.average,
            _ours(check),
            f"{check.n:,}",
            "" if check.published is None else _shown(check, check.published),
            check.verdict,
            sources,
            style=_STYLES[check.verdict],
        )
    return sheet


def _ours(check: Check) -> str:
    if math.isnan(check.ours):
        return "unknown"
    low, high = _shown(check, check.ci_low), _shown(check, check.ci_high)
    return f"{_shown(check, check.ours)} [{low}, {high}]"


def _merged(found: list[Check]) -> Iterator[tuple[Check, str]]:
    """Papers print a number in several tables: one line for it, with all its sources."""
    same: dict[object, list[Check]] = {}
    for check in found:
        same.setdefault((check.group, check.metric, check.average, check.published), []).append(
            check
        )
    for checks in same.values():
        yield checks[0], _sources(checks)


def _sources(checks: list[Check]) -> str:
    """ "A, Table 1" and "A, Table 3" are "A, Table 1, 3"."""
    tables: dict[str, list[str]] = {}
    for check in checks:
        paper, _, table = check.source.partition(", Table ")
        tables.setdefault(paper, []).append(table)
    return "; ".join(
        f"{paper}, Table {', '.join(dict.fromkeys(numbers))}" if numbers[0] else paper
        for paper, numbers in tables.items()
    )


def _shown(check: Check, value: float) -> str:
    """A number with as many decimals as the published one has."""
    from counterpoint.metrics import METRICS

    share = METRICS[check.metric].unit == "share"
    scale, usual = (100, 1) if share else (1, 3)
    decimals = usual if check.rounding is None else -round(math.log10(2 * scale * check.rounding))
    return f"{scale * value:.{decimals}f}"
