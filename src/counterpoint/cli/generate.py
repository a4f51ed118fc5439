"""`counterpoint generate`: hard negatives and positives from captions, images for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from counterpoint._util.errors import ModelError
from counterpoint.cli import generate_images
from counterpoint.cli.console import (
    AsJson,
    DataFolder,
    RayAddress,
    command,
    counted,
    errors,
    output,
    plainly,
    print_json,
    progress_bars,
    say,
    warn,
)

if TYPE_CHECKING:
    from counterpoint.generation import Generated, Kind, ReplaceCounts
    from counterpoint.generation.inputs import Captions

app = typer.Typer(
    name="generate",
    help="Make hard negatives and hard positives from captions, and images for them.",
    no_args_is_help=True,
)

Input = Annotated[
    str,
    typer.Argument(
        metavar="INPUT",
        help="Captions: COCO or Karpathy JSON, CSV, TSV, JSONL, Parquet, a benchmark's id, `world`;"
        " for vg-attribution and vg-relation a scene-graph JSON.",
    ),
]
Out = Annotated[Path, typer.Option("-o", "--out", help="The pairs file, a new .parquet.")]
MethodNames = Annotated[
    list[str],
    typer.Option(
        "-M",
        "--method",
        help="A method (`counterpoint ls methods`), repeatable; `rules`, `llm` or `trohn`: all of "
        "that kind; FILE.toml: your own template for a language model.",
    ),
]
Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Random seed.")]
Each = Annotated[
    int, typer.Option(min=1, max=4, help="Maximum number of texts per method and kind of change.")
]
Form = Annotated[
    Literal["caption", "uniform"],
    typer.Option(
        "--format",
        help="Write texts like their captions, or both in one format (`A dog.`), as in BiVLC.",
    ),
]
Checks = Annotated[bool, typer.Option("--checks/--no-checks", help="Let the checks reject texts.")]
KeepRefused = Annotated[
    bool, typer.Option("--keep-refused", help="Keep rejected texts, marked with the reason.")
]
Doubtful = Annotated[
    bool,
    typer.Option("--doubtful", help="Also use words that may be false: narrower or doubtful ones."),
]
Ranking = Annotated[
    str,
    typer.Option(
        "--plausible",
        help="What ranks the drafts of negatives and rejects implausible ones: `shipped` (an n-gram"
        " model), FILE.npz (your own), a blind model such as lm:FOLDER, or `none`.",
    ),
]
Model = Annotated[
    str, typer.Option("--model", help="For llm/...: a model of the server at OPENAI_BASE_URL.")
]
Shots = Annotated[
    int | None,
    typer.Option(
        min=0, help="For llm/...: examples in a prompt; default: as the template says (2 to 4)."
    ),
]
DryRun = Annotated[
    int,
    typer.Option("--dry-run", min=0, help="Print the prompts of the first N captions and stop."),
]
Limit = Annotated[int, typer.Option(min=0, help="Only the first N captions; 0: all.")]
Workers = Annotated[int, typer.Option(min=0, help="Processes for rules; 0: one per core.")]
Engine = Annotated[str, typer.Option(help="Where rules work: local, or ray: on a cluster.")]
CaptionColumn = Annotated[str | None, typer.Option(help="Name of the column with the captions.")]
ImageColumn = Annotated[str | None, typer.Option(help="Name of the column with the images.")]
Split = Annotated[str | None, typer.Option(help="Only these splits of a Karpathy file.")]
Images = Annotated[
    Path | None, typer.Option(help="Folder that image paths start from; default: the input's.")
]
Sizes = Annotated[
    Path | None, typer.Option(help="Visual Genome's image_data.json, for its scene graphs.")
]


def _command(kind: Kind, example: str) -> Callable[..., None]:
    def command(
        input: Input,
        out: Out,
        method: MethodNames = ["rules"],  # noqa: B006 - typer reads it once
        seed: Seed = 0,
        each: Each = 1,
        form: Form = "caption",
        checks: Checks = True,
        keep_refused: KeepRefused = False,
        doubtful: Doubtful = False,
        plausible: Ranking = "shipped",
        model: Model = "",
        shots: Shots = None,
        dry_run: DryRun = 0,
        limit: Limit = 0,
        workers: Workers = 0,
        engine: Engine = "local",
        ray_address: RayAddress = "local",
        caption_column: CaptionColumn = None,
        image_column: ImageColumn = None,
        split: Split = None,
        images: Images = None,
        sizes: Sizes = None,
        data: DataFolder = None,
        as_json: AsJson = False,
    ) -> None:
        from counterpoint.api import generate
        from counterpoint.generation import chosen_methods

        names = chosen_methods(method, kind)
        if dry_run and not names.llm:
            raise typer.BadParameter("only llm methods have prompts", param_hint="--dry-run")
        if shots is not None and not names.llm:
            raise typer.BadParameter("only llm methods have examples", param_hint="--shots")
        if kind == "positive" and plausible != "shipped":
            raise typer.BadParameter("only negatives are ranked", param_hint="--plausible")
        if limit and names.graphs:
            raise typer.BadParameter("not possible with scene graphs", param_hint="--limit")
        if names.llm and not (model or dry_run):
            raise typer.BadParameter("llm methods need the name of a model", param_hint="--model")
        columns = {"caption": caption_column, "image": image_column, "split": split}
        if dry_run:
            captions = _captions(input, data, images, columns)
            _print_prompts(captions, names.llm, model, shots, min(dry_run, limit or dry_run))
            return
        with progress_bars() as bars:
            report = generate(
                "negatives" if kind == "negative" else "positives",
                input,
                out,
                methods=method,
                model=model,
                shots=shots,
                limit=limit,
                workers=workers or None,
                engine=engine,
                ray_address=ray_address,
                data=data,
                images=images,
                sizes=sizes,
                columns=columns,
                progress=bars,
                seed=seed,
                checks=checks,
                each=each,
                form=form,
                doubtful=doubtful,
                keep_refused=keep_refused,
                plausible=plausible,
            )
        _show(report, out, as_json)
        if names.llm:
            _refuse_unread(report, out)

    command.__doc__ = f"""Make hard {kind}s from captions: a Parquet file of pairs.

    Examples:

    {example}

    After an interrupt or a kill, the same command resumes. See docs/generate/index.md.
    """
    return command


def import_(
    input: Input,
    out: Out,
    texts: Annotated[
        Path | None,
        typer.Argument(
            help="One JSON string per line, in the order of the captions. Without it, INPUT is a "
            "benchmark or a case file, whose own texts are taken."
        ),
    ] = None,
    kind: Annotated[
        Literal["negative", "positive"] | None,
        typer.Option(help="What the texts are; default: positive; of a benchmark: both."),
    ] = None,
    type: Annotated[
        Literal["replace", "swap", "add", "negate", "shuffle", "paraphrase"],
        typer.Option(help="The type of change, where a benchmark's groups do not say it."),
    ] = "replace",
    subtype: Annotated[
        Literal["obj", "att", "rel", "count", "bind", ""],
        typer.Option(help="What is changed; empty: unknown."),
    ] = "",
    form: Form = "caption",
    checks: Annotated[
        bool, typer.Option("--checks/--no-checks", help="Let the checks reject texts.")
    ] = False,
    caption_column: CaptionColumn = None,
    image_column: ImageColumn = None,
    split: Split = None,
    images: Images = None,
    data: DataFolder = None,
    as_json: AsJson = False,
) -> None:
    """Make a pairs file of texts that were made elsewhere, such as the hard positives' authors'.

    Examples:

    counterpoint generate import captions_train2017.json replace.jsonl -o positives.parquet

    counterpoint generate import captions_train2017.json swap.jsonl -o swap.parquet --type swap

    counterpoint generate import sugarcrepe -o sugarcrepe.parquet --format uniform

    Line n is the text of caption n; null or "None" where there is none.
    """
    from counterpoint.generation import KINDS, TextSettings, import_cases, import_texts
    from counterpoint.generation.inputs import is_case_file

    settings = TextSettings(kind or "positive", (), checks=checks, form=form)
    columns = {"caption": caption_column, "image": image_column, "split": split}
    if texts is None and Path(input).is_file() and not is_case_file(Path(input)):
        raise typer.BadParameter("captions need a file of texts", param_hint="TEXTS")
    with progress_bars() as bars:
        what: dict[str, Any] = {"type": type, "subtype": subtype, "progress": bars}
        if texts is None:
            kinds = (kind,) if kind else KINDS
            made = import_cases(input, data, settings, out, images=images, kinds=kinds, **what)
        else:
            captions = _captions(input, data, images, columns)
            made = import_texts(captions, texts, settings, out, **what)
    _show(made, out, as_json)


def _captions(
    name: str, data: Path | None, images: Path | None, columns: dict[str, str | None]
) -> Captions:
    from counterpoint.generation.inputs import CaptionOptions, open_captions

    return open_captions(name, data, images=images, options=CaptionOptions(**columns))


def _print_prompts(
    captions: Captions, names: Sequence[str], model: str, shots: int | None, count: int
) -> None:
    from itertools import chain, islice

    from counterpoint.generation.llm import ChatMethod, ChatModel

    chosen = [source.caption for source in islice(captions, count)]
    for name in names:
        method = ChatMethod(name, ChatModel(model), shots)
        for prompt in chain.from_iterable(map(method.prompts, chosen)):
            say(prompt)
            output.print()


def _show(report: Generated, out: Path, as_json: bool) -> None:
    from counterpoint.generation import CAPTIONS, MADE
    from counterpoint.runs import Sheet

    by_method: dict[str, Counter[str]] = {}
    for (what, reason), number in report.counts.items():
        by_method.setdefault(what, Counter())[reason] += number
    if as_json:
        print_json(
            [
                {"what": what, "reason": reason, "count": number}
                for (what, reason), number in sorted(report.counts.items())
            ]
        )
        return
    captions = by_method.pop(CAPTIONS, Counter())
    sheet = Sheet(
        {"method": "text", "texts": "count", "refused": "count", "why, the commonest first": "text"}
    )
    for method, counts in sorted(by_method.items()):
        refused = [(reason, n) for reason, n in counts.most_common() if reason != MADE]
        why = ", ".join(f"{reason} {n:,}" for reason, n in refused[:4])
        more = ", ..." if len(refused) > 4 else ""
        total = sum(n for _, n in refused)
        sheet.add(method, f"{counts[MADE]:,}", f"{total:,}", why + more)
    output.print(sheet)
    unread = {reason: n for reason, n in captions.items() if reason != MADE}
    say(f"{counted(report.rows, 'pair')} from {counted(report.captions, 'caption')} in {out}")
    for reason, number in unread.items():
        errors.print(f"note: {counted(number, 'caption')} rejected: {reason}", style="yellow")


_UNREAD: Final = 0.1  # of the answers of a language model: more are an error


def _refuse_unread(report: Generated, out: Path) -> None:
    """Raise if a language model does not answer in the form that it is asked for."""
    from counterpoint.generation.llm import unread

    for method in sorted({what for what, _ in report.counts}):
        reasons = {why: n for (what, why), n in report.counts.items() if what == method}
        lost, answers = unread(reasons)
        if lost > _UNREAD * answers:
            raise ModelError(
                "E-ANSWERS-UNREAD",
                f"{method}: {lost:,} of {answers:,} answers cannot be read, more than "
                f"{100 * _UNREAD:.0f} %; the pairs of the others are in {out}, and all answers are "
                "kept; ask another model, or with a template whose form it keeps.",
            )


def replace(
    out: Annotated[Path, typer.Option("-o", "--out", help="The case file (.parquet).")],
    words: Annotated[
        Path | None,
        typer.Option(
            help="Synonyms of your own: a table (.csv, .tsv, .jsonl, .parquet) with the columns "
            "part (relations/spatial), word and synonym (empty: left out); default: the paper's."
        ),
    ] = None,
    most_common: Annotated[
        int, typer.Option(min=1, help="Words of each part that are looked at, the commonest first.")
    ] = 10,
    data: DataFolder = None,
    as_json: AsJson = False,
) -> None:
    """Make REPLACE of the Hard Positives paper from VL-CheckList: a case file of 1 x 3.

    Examples:

    counterpoint generate replace -o replace.parquet --data data

    counterpoint generate replace -o mine.parquet --words synonyms.csv --most-common 20

    Of each part of VL-CheckList's Visual Genome files, the most common words are counted; those
    with a synonym get a positive, and VL-CheckList's own negative stays.
    """
    from counterpoint.data import data_root
    from counterpoint.generation import make_replace, require_parquet, reserved

    require_parquet(out, "cases")
    with reserved(out):
        counts = make_replace(data_root(data), out, words=words, most_common=most_common)
    if as_json:
        words_made = [word._asdict() for word in counts.words]
        print_json([{"words": words_made, "left_out": dict(counts.left_out)}])
    else:
        _show_replace(counts, out)


def _show_replace(counts: ReplaceCounts, out: Path) -> None:
    from counterpoint.runs import Sheet

    sheet = Sheet(
        {"part": "text", "word": "text", "rows": "count", "synonym": "text", "cases": "count"}
    )
    for word in counts.words:
        made = (word.synonym, f"{word.cases:,}") if word.synonym else ("-", "")
        sheet.add(word.part, word.word, f"{word.rows:,}", *made)
    output.print(sheet)
    total = counted(sum(word.cases for word in counts.words), "case")
    say(f"saved {out}: {total}")
    say(f"score a model on it: {command(f'eval -m MODEL -b {out}')}")
    for reason, number in counts.left_out.most_common():
        warn(f"left out: {number:,} {reason}")


app.command("negatives")(
    plainly(
        _command(
            "negative",
            "counterpoint generate negatives world -o negatives.parquet\n\n"
            "    counterpoint generate negatives world -o as-the-authors.parquet --no-checks "
            "--plausible none\n\n"
            "    counterpoint generate negatives captions_val2017.json -M negclip -M crepe-replace "
            "-o coco.parquet\n\n"
            "    counterpoint generate negatives world:size=3000 -o large.parquet --engine ray "
            "--workers 2",
        ),
        resumes=True,
    )
)
app.command("positives")(
    plainly(
        _command("positive", "counterpoint generate positives sugarcrepe -o positives.parquet"),
        resumes=True,
    )
)
app.command("import")(plainly(import_))
app.command("images")(plainly(generate_images.images, resumes=True))
app.command("renderings")(plainly(generate_images.renderings))
app.command("replace")(plainly(replace))
app.command("neighbours")(plainly(generate_images.neighbours, resumes=True))
