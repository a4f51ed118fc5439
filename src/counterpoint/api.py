"""The Python API: what the command line does, one call each, under the same names.

Strings, paths and objects are accepted alike. One in, one out; a list in, a list out. Every error
that a caller can cause is a `CounterpointError`. `evaluate`, `import_scores` and `load_benchmark`
are exported from their rooms as they are; the calls below open files and choose defaults.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from counterpoint._util.errors import CounterpointError, NotFoundError, missing_extra
from counterpoint._util.progress import Progress, Quiet, shown
from counterpoint._util.registry import did_you_mean
from counterpoint._util.writing import whole_file
from counterpoint.metrics import RESAMPLES, Protocol, get_protocol
from counterpoint.runs import (
    Comparison,
    Results,
    Run,
    find_runs,
    load_run,
    results_of,
)

if TYPE_CHECKING:
    from counterpoint.evaluation import Check, EvalSweep, ExportedVectors, Health
    from counterpoint.generation import Generated, Kind
    from counterpoint.generation.refinement import Refined
    from counterpoint.scoring import DualEncoder, Model
    from counterpoint.training import Sweep, Trained

RunLike = Run | str | Path
Bars = Progress | Literal["auto"] | None
_AUTO: Final = "auto"


@contextmanager
def _extras() -> Iterator[None]:
    """Where a package is missing, the extra to install is named."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise missing_extra(error) or error from None


def load_runs(
    path: str | Path | Iterable[str | Path], *, progress: Progress | None = None
) -> list[Run]:
    """Every run at or below a folder (or several), oldest first, each once."""
    paths = [path] if isinstance(path, str | Path) else path
    folders = list(dict.fromkeys(folder for one in paths for folder in find_runs(Path(one))))
    advance = (progress or Quiet()).start("reading runs", len(folders))
    runs = []
    for folder in folders:
        runs.append(load_run(folder))
        advance(1)
    return runs


def rescore(
    runs: RunLike | Iterable[RunLike],
    *,
    groups: bool = False,
    protocol: str | Protocol | None = None,
    resamples: int = RESAMPLES,
) -> Results:
    """One table of several runs, computed again from their stored scores, without the model."""
    return results_of(_runs(runs), _protocol(protocol), groups=groups, resamples=resamples)


def compare(
    a: RunLike,
    b: RunLike,
    *,
    protocol: str | Protocol | None = None,
    resamples: int = RESAMPLES,
    margin: float | None = None,
) -> Comparison:
    """Is run A better than run B? Paired case by case, with intervals and verdicts.

    `margin` is a difference that does not matter, in points of per cent: with it, runs whose
    difference lies within it with its whole interval are tied.
    """
    return load_run(a).compare(b, protocol=protocol, resamples=resamples, margin=margin)


@_extras()
def report(
    runs: RunLike | Iterable[RunLike],
    out: str | Path,
    *,
    title: str = "",
    protocol: str | Protocol | None = None,
    all_metrics: bool = False,
    called: Mapping[str, str] | None = None,
    progress: Bars = _AUTO,
) -> Path:
    """Write runs as one HTML page, or as a table: the ending of `out` is .html, .md, .tex or .csv.

    `called` maps a run's model to the name that papers use, to show published numbers beside it.
    """
    from counterpoint.reports import ReportOptions, report_text

    place = Path(out)
    with shown(progress) as bars:
        options = ReportOptions(
            protocol=_protocol(protocol),
            title=title,
            all_metrics=all_metrics,
            called=dict(called or {}),
            progress=bars,
        )
        text = report_text(_runs(runs), place.suffix, options)
    with whole_file(place) as draft:
        draft.write_text(text, encoding="utf-8")
    return place


@_extras()
def publish(
    runs: RunLike | Iterable[RunLike],
    out: str | Path,
    *,
    protocol: str | Protocol | None = None,
    called: Mapping[str, str] | None = None,
    datasets: Mapping[str, str] | None = None,
    progress: Bars = _AUTO,
    **options: Any,
) -> Path:
    """Write runs as the Hugging Face Hub, Every Eval Ever and W&B read them; nothing is uploaded.

    `called` maps a run's model to its OWNER/NAME on the Hub, `datasets` a benchmark to the data set
    OWNER/NAME[:TASK] of its leaderboard. `options`: groups, organization, relationship, source,
    wandb, overwrite, as of `counterpoint publish`.
    """
    from counterpoint.reports.publishing import PublishOptions, publish as write

    with shown(progress) as bars:
        chosen = PublishOptions(
            protocol=_protocol(protocol),
            called=dict(called or {}),
            datasets=dict(datasets or {}),
            progress=bars,
            **options,
        )
        write(_runs(runs), Path(out), chosen)
    return Path(out)


@_extras()
def board(
    runs: RunLike | Iterable[RunLike],
    out: str | Path,
    *,
    title: str = "Compositionality board",
    called: Mapping[str, str] | None = None,
    progress: Bars = _AUTO,
) -> Path:
    """Write a static site of runs, with published values beside them; no runs, only these.

    `called` maps a run's model to the name that papers use. Gives the path of the first page.
    """
    from counterpoint.reports.board import BoardOptions, make_board

    with shown(progress) as bars:
        options = BoardOptions(title=title, called=dict(called or {}), progress=bars)
        make_board(_runs(runs), Path(out), options)
    return Path(out) / "index.html"


def verify(run: RunLike, model: str | None = None, *, resamples: int = RESAMPLES) -> list[Check]:
    """The papers' numbers beside a run's. `model` is what the papers call the run's model."""
    from counterpoint.evaluation import verify as check

    return check(load_run(run), model, resamples=resamples)


@_extras()
def doctor(benchmark: str | Path, **options: Any) -> Health:
    """The health of a benchmark: what is missing, what is broken, what its words give away."""
    from counterpoint.evaluation import examine

    return examine(str(benchmark), **options)


@_extras()
def load_model(
    id: str,
    *,
    device: str = "auto",
    precision: str = "fp32",
    trust_remote_code: bool = False,
) -> Model:
    """Load a model by its id, for instance `open_clip:ViT-B-32-quickgelu/openai`.

    `list_models()` has an example of every family. What is returned is an object of one of the
    kinds: `DualEncoder`, `PairScorer`, `BlindScorer`, `TableScorer` or `BenchmarkScorer`.
    """
    from counterpoint.models import LoadOptions, load_model as load

    model = load(id, LoadOptions(device, precision, trust_remote_code))
    if not hasattr(model, "name"):
        with suppress(AttributeError):  # an object with slots is called by its class
            model.name = id  # type: ignore[union-attr]  # what a run of it is called
    return model


@_extras()
def generate(
    kind: Literal["negatives", "positives"],
    captions: str | Path,
    out: str | Path,
    *,
    methods: str | Sequence[str] = "rules",
    model: str = "",
    shots: int | None = None,
    limit: int = 0,
    workers: int | None = None,
    engine: str = "local",
    ray_address: str = "local",
    data: str | Path | None = None,
    images: str | Path | None = None,
    sizes: str | Path | None = None,
    columns: Mapping[str, Any] | None = None,
    progress: Bars = _AUTO,
    **settings: Any,
) -> Generated:
    """Make hard negatives or hard positives from captions: a Parquet file of pairs.

        generate("negatives", "captions_val2017.json", "negatives.parquet", methods="negclip")

    `captions` is a file, a benchmark's id or `world`. `methods` are names of `counterpoint ls
    methods` or paths of your own templates (.toml); those of language models need `model`, a model
    of the server at OPENAI_BASE_URL, and may have another number of examples (`shots`); those of
    scene graphs need a file of these for `captions`, Visual Genome's with the `sizes` of images.
    `images` is the folder that image paths start from, by default that of `captions`.
    `columns` are fields of `CaptionOptions`, `settings` those of generation: seed, each, form,
    checks, doubtful. Rules are made by `workers` processes; with `engine="ray"`, on a cluster.
    Called again after an end of any kind, it goes on from there.
    """
    from counterpoint import generation
    from counterpoint.generation.inputs import CaptionOptions, open_captions

    kinds: dict[str, Kind] = {"negatives": "negative", "positives": "positive"}
    if kind not in kinds:
        raise NotFoundError("E-OPTION-INVALID", did_you_mean("kind of text", str(kind), kinds))
    names = [methods] if isinstance(methods, str) else list(methods)
    rules, asked, graphs = generation.chosen_methods(names, kinds[kind])
    settings |= {"kind": kinds[kind], "methods": graphs or rules}
    chosen = _settings(generation.TextSettings, **settings)
    root, place, table = (None if one is None else Path(one) for one in (data, images, sizes))
    with ExitStack() as stack:
        bars = stack.enter_context(shown(progress))
        if graphs:
            return generation.generate_from_graphs(
                Path(captions), chosen, Path(out), sizes=table, images=place, progress=bars
            )
        options = _settings(CaptionOptions, **(columns or {}))
        read = open_captions(str(captions), root, images=place, options=options, limit=limit)
        writers = []
        if asked:
            from counterpoint.generation.llm import ChatMethod, ChatModel, note_costs

            served = stack.enter_context(ChatModel(model))
            writers = [ChatMethod(name, served, shots) for name in asked]
            note_costs(read, writers, bars)
        return generation.generate(
            read,
            chosen,
            Path(out),
            writers=writers,
            workers=workers,
            engine=engine,
            ray_address=ray_address,
            progress=bars,
        )


@_extras()
def refine(
    pairs: str | Path,
    out: str | Path,
    blind: str | Sequence[str],
    *,
    tables: Sequence[str | Path] = (),
    batch_size: int = 128,
    device: str = "auto",
    precision: str = "fp32",
    store: str | Path | None = None,
    progress: Bars = _AUTO,
    **settings: Any,
) -> Refined:
    """Balance negatives until models that see no image are at chance, as SugarCrepe was made.

    `settings` are the other options of refinement: watch, select, top, bins, by, seed.
    """
    from counterpoint._util.store import Store, default_store
    from counterpoint.generation import refinement, reserved
    from counterpoint.models import LoadOptions
    from counterpoint.scoring import Work

    names = (blind,) if isinstance(blind, str) else tuple(blind)
    asked = _settings(refinement.RefineSettings, blind=names, **settings)
    place = Path(out)
    kept = Path(store) if store else default_store()
    with reserved(place), shown(progress) as bars, Store(kept) as opened:
        return refinement.refine(
            Path(pairs),
            place,
            asked,
            Work(opened, batch_size, bars),
            tables=[Path(table) for table in tables],
            options=LoadOptions(device, precision),
        )


@_extras()
def export(
    pairs: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    form: Literal["benchmark", "training", "hf"],
    progress: Bars = _AUTO,
    **options: Any,
) -> dict[str, int]:
    """Make a benchmark, a training set or a data set folder of pairs.

    Returns the number of rows written under "rows", and of what was left out under its reason.
    """
    from counterpoint.generation import export as ways, reserved

    writers: dict[str, Callable[..., int]] = {
        "benchmark": ways.export_benchmark,
        "training": ways.export_training,
        "hf": ways.export_hub,
    }
    if form not in writers:
        raise CounterpointError(
            "E-OPTION-INVALID", f"form is benchmark, training or hf, not {form!r}."
        )
    files = [pairs] if isinstance(pairs, str | Path) else pairs
    left_out: Counter[str] = Counter()
    with reserved(Path(out)), shown(progress) as bars:
        write, read = writers[form], [Path(file) for file in files]
        made = write(read, Path(out), left_out, progress=bars, **options)
    return {"rows": made, **left_out}


@_extras()
def export_vectors(
    model: str | DualEncoder | tuple[str, DualEncoder],
    benchmarks: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    device: str = "auto",
    precision: str = "fp32",
    trust_remote_code: bool = False,
    store: str | Path | None = None,
    progress: Bars = _AUTO,
    **options: Any,
) -> ExportedVectors:
    """Write a model's vectors of benchmarks to a folder, which is the model `vectors:FOLDER`.

        export_vectors("world:base", "world-swap:size=200", "vectors")
        evaluate("vectors:vectors", "world-swap:size=200")

    `options`: data, form (parquet, npy or safetensors), limit, protocol, batch_size.
    """
    from counterpoint._util.store import Store, default_store
    from counterpoint.evaluation import export_vectors as write
    from counterpoint.models import LoadOptions

    names = [benchmarks] if isinstance(benchmarks, str | Path) else list(benchmarks)
    named = model if isinstance(model, str | tuple) else (type(model).__name__, model)
    with shown(progress) as bars, Store(Path(store) if store else default_store()) as opened:
        return write(
            named,
            names,
            Path(out),
            store=opened,
            progress=bars,
            options=LoadOptions(device, precision, trust_remote_code),
            **options,
        )


@_extras()
def train(
    recipe: str | Path, *, world: bool = False, progress: Bars = _AUTO, **changes: Any
) -> Trained | None:
    """Finetune a model by a recipe; start and tuned model in one table.

        train("hp-hn", world=True, steps=200, out="runs/hp-hn")
        train("negclip", data={"path": "train.parquet", "images": "coco/train2014"})

    `changes` are keys of the recipe. Stopped in any way, the same call goes on from the last
    checkpoint. Under torchrun all processes but the first get None.
    """
    from counterpoint.training import load_recipe, train as run_recipe

    chosen = load_recipe(str(recipe), list(_changes(changes)), world=world)
    with shown(progress) as bars:
        return run_recipe(chosen, None, bars)


@_extras()
def sweep(
    recipe: str | Path,
    grid: str | Path | None = None,
    *,
    world: bool = False,
    out: str | Path | None = None,
    progress: Bars = _AUTO,
    **changes: Any,
) -> Sweep | EvalSweep:
    """Evaluate models x benchmarks by a plan, or train every cell of a grid.

        sweep("plan.yaml", devices="0,1")    # a YAML file with models and benchmarks
        sweep("hp-hn", "grid.yaml")          # a recipe, and a YAML file of keys with values

    Finished cells are not run again. With a grid, `changes` are keys of the recipe that all cells
    have; with a plan they are devices, engine (local, ray or slurm), address (of Ray) and slurm
    (parameters of submitit).
    """
    place = None if out is None else Path(out)
    with shown(progress) as bars:
        if grid is None:
            from counterpoint.evaluation import sweep_evaluations

            return sweep_evaluations(Path(recipe), out=place, progress=bars, **changes)
        from counterpoint.training import sweep as run_sweep

        return run_sweep(
            str(recipe), Path(grid), list(_changes(changes)), world=world, out=place, progress=bars
        )


@_extras()
def wise(
    base: str,
    tuned: str,
    benchmarks: str | Sequence[str],
    *,
    alphas: Sequence[float] | None = None,
    device: str = "auto",
    precision: str = "fp32",
    out: str | Path | None = None,
    **options: Any,
) -> list[Run]:
    """Evaluate the line between a model and its finetuned form (WiSE-FT): one run per alpha."""
    from counterpoint.evaluation import ALPHAS, Line, evaluate_line
    from counterpoint.models import LoadOptions

    line = Line(base, tuned, LoadOptions(device, precision))
    names = [benchmarks] if isinstance(benchmarks, str) else list(benchmarks)
    place = None if out is None else Path(out)
    return evaluate_line(line, names, alphas or ALPHAS, out=place, **options)


def _runs(runs: RunLike | Iterable[RunLike]) -> list[Run]:
    """A folder may hold several runs."""
    given = [runs] if isinstance(runs, Run | str | Path) else list(runs)
    return [run for one in given for run in ([one] if isinstance(one, Run) else load_runs(one))]


def _protocol(protocol: str | Protocol | None) -> Protocol | None:
    return None if protocol is None else get_protocol(protocol)


def _settings(made: type[Any], /, **values: Any) -> Any:
    known = [field.name for field in fields(made)]
    for name in values:
        if name not in known:
            raise NotFoundError("E-OPTION-UNKNOWN", did_you_mean("option", name, known))
    return made(**values)


def _changes(values: Mapping[str, Any], before: str = "") -> Iterable[str]:
    """Nested keys as `key=value` changes of a recipe; values are JSON, which YAML can read."""
    import json

    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _changes(value, f"{before}{key}.")
        else:
            plain = str(value) if isinstance(value, Path) else value
            yield f"{before}{key}={json.dumps(plain)}"
