"""`counterpoint studio`, and `campaign`: human annotation in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from counterpoint.cli.console import (
    AsJson,
    DataFolder,
    command,
    counted,
    errors,
    output,
    plainly,
    print_json,
    refuse_missing_folder,
    remark,
    say,
    warn,
)

if TYPE_CHECKING:
    from counterpoint.studio import Database
    from counterpoint.studio.annotate import CampaignResults


app = typer.Typer(
    name="campaign",
    help="Human annotation of cases or pairs, in the studio: `new`, `ls`, `results`.",
    no_args_is_help=True,
)
DEFAULT_DB: Final = "studio.db"
Db = Annotated[
    str,
    typer.Option(
        "--db",
        help="Database of the answers: a SQLite file or a postgresql:// URL.",
        envvar="COUNTERPOINT_DB",
    ),
]


def _open(db: str) -> Database:
    """First in every verb: without its packages nothing of the studio can be imported."""
    from counterpoint._util.errors import MissingExtraError

    try:
        from counterpoint.studio import open_database
    except ImportError:
        raise MissingExtraError("campaigns", "studio") from None
    return open_database(db)


def new(
    name: Annotated[str, typer.Argument(help="A name for the campaign: letters, digits, dashes.")],
    source: Annotated[
        str, typer.Argument(help="A pairs file, a benchmark id, a case file or a run folder.")
    ],
    kind: Annotated[
        str,
        typer.Option(
            "--as",
            help="best-image, which-image, renderings, image-to-text, text-to-image, both-ways, "
            "rank or compare-texts.",
        ),
    ],
    annotators: Annotated[
        int, typer.Option(min=1, help="Number of annotators (personal links).")
    ] = 2,
    overlap: Annotated[int, typer.Option(min=1, help="Number of annotators per item.")] = 2,
    fixed: Annotated[
        bool,
        typer.Option(
            "--fixed",
            help="Fixed teams of OVERLAP annotators, in the order of their numbers: a team shares "
            "its cases. Default: an item goes to the annotators who ask first.",
        ),
    ] = False,
    checks: Annotated[
        float, typer.Option(min=0, max=0.5, help="Share of attention checks among the items.")
    ] = 0.1,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Maximum number of cases, a random sample by --seed; of compare-texts, per type.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    benchmark: Annotated[
        str | None, typer.Option(help="Benchmark id, for a run with several benchmarks.")
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(help="compare-texts: the second pairs file, with texts of the same captions."),
    ] = None,
    images: Annotated[
        Path | None,
        typer.Option(help="Folder of the images of a pairs file. Default: as the file says."),
    ] = None,
    instructions: Annotated[
        Path | None,
        typer.Option(
            help="Text file with instructions for annotators, instead of the built-in ones."
        ),
    ] = None,
    data: DataFolder = None,
    db: Db = DEFAULT_DB,
    as_json: AsJson = False,
) -> None:
    """Make a campaign and print a personal link for each annotator.

    Examples:

    counterpoint campaign new humans world-bi:size=100 --as both-ways

    counterpoint campaign new filter pairs.parquet --as best-image --annotators 10 --fixed

    counterpoint campaign new changes world-images:size=120 --as renderings --annotators 3

    counterpoint campaign new quality mine.parquet --against theirs.parquet --as compare-texts
    --limit 100

    The links start at the address that `counterpoint studio` prints.
    """
    database = _open(db)
    from counterpoint.studio.annotate import CampaignDesign, Order, SourceSelection, make_campaign

    try:
        text = _read(instructions) if instructions else ""
        settings = CampaignDesign(overlap, checks, seed, text, fixed)
        wanted = SourceSelection(limit, seed, data, images, benchmark, against)
        made = make_campaign(database, Order(name, source, kind, settings, annotators, wanted))
    finally:
        database.close()
    for reason, count in made.left_out.items():
        warn(f"left out: {count:,} {reason}")
    if as_json:
        print_json([{"annotator": n, "link": link} for n, link in enumerate(made.links, 1)])
        return
    say(
        f"{made.name}: {counted(made.items, 'item')}, each for {overlap} of "
        f"{counted(annotators, 'annotator')}, and {counted(made.checks, 'attention check')}"
    )
    for number, link in enumerate(made.links, 1):
        say(f"annotator {number}  {link}")


def _read(path: Path) -> str:
    from counterpoint._util.errors import DataError, reason

    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DataError("E-FILE-UNREADABLE", f"{path}: cannot be read: {reason(error)}.") from None
    except UnicodeDecodeError:
        raise DataError(
            "E-FILE-MALFORMED", f"{path}: the instructions are not a text in UTF-8."
        ) from None


def ls(db: Db = DEFAULT_DB, as_json: AsJson = False) -> None:
    """List the campaigns and their progress.

    Example:

    counterpoint campaign ls --json
    """
    from dataclasses import asdict

    database = _open(db)
    from counterpoint.studio.annotate import standings

    with database.reading() as session:
        found = standings(session)
    database.close()
    if as_json:
        print_json([asdict(one) for one in found])
        return
    if not found:
        errors.print(f"no campaigns yet; `{command('campaign new')}` makes one.")
    for one in found:
        say(
            f"{one.name}  {one.kind}  {counted(one.items, 'item')}  "
            f"{one.given:,} of {one.wanted:,} answers  {counted(one.annotators, 'annotator')}"
        )


def results(
    name: Annotated[str, typer.Argument(help="The campaign.")],
    human: Annotated[
        Path | None, typer.Option(help="Write the answers as a run folder of the model `human`.")
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(
            help="Write what the majority accepted: a case file or a pairs file; of "
            "compare-texts, what it preferred: a .csv."
        ),
    ] = None,
    answers: Annotated[Path | None, typer.Option(help="Write every answer as CSV.")] = None,
    least: Annotated[
        float,
        typer.Option(
            "--least-checks",
            min=0,
            max=1,
            help="Count only annotators who pass this share of the checks.",
        ),
    ] = 0.0,
    db: Db = DEFAULT_DB,
    as_json: AsJson = False,
) -> None:
    """Show how far annotators agree, and write answers and accepted cases to files.

    Examples:

    counterpoint campaign results humans --human runs/human

    counterpoint campaign results filter --export accepted.parquet --least-checks 0.8
    """
    refuse_missing_folder(answers)
    database = _open(db)
    from counterpoint._util.writing import whole_file
    from counterpoint.studio.annotate import answers_csv, find_campaign, outcome_of

    with database.reading() as session:
        campaign = find_campaign(session, name)
        found = outcome_of(session, campaign, least)
        table = answers_csv(session, campaign) if answers else ""
    database.close()
    if as_json:
        print_json([*_agreement_rows(found), *_compared_rows(found)])
    else:
        _print(found)
    if answers:
        with whole_file(answers) as draft:
            draft.write_text(table, encoding="utf-8")
        remark(f"saved {answers}")
    _save(found, human, export)


def _save(found: CampaignResults, human: Path | None, out: Path | None) -> None:
    from counterpoint.runs import save_run
    from counterpoint.studio.annotate import export, human_run

    if human:
        run = save_run(human_run(found), human)
        missing = f", {counted(run.left_out, 'case')} without an answer" if run.left_out else ""
        remark(f"saved {human}{missing}")
    if out:
        written = export(found, out)
        remark(f"saved {out}: {counted(written.rows, 'row')}")
        for reason, count in written.left_out.items():
            warn(f"left out: {count:,} {reason}")


def _agreement_rows(found: CampaignResults) -> list[dict[str, object]]:
    """A row a pair, then one for all: a missing kappa is null."""
    rows: list[dict[str, object]] = []
    for on in found.agreement:
        pairs = ({"a": p.a, "b": p.b, "items": p.items, "kappa": p.kappa} for p in on.pairs)
        whole = {"mean_kappa": on.mean, "fleiss": on.fleiss, "fleiss_items": on.fleiss_items}
        rows += [{"on": on.what, **row} for row in (*pairs, {**whole, "alpha": on.alpha})]
    return rows


def _compared_rows(found: CampaignResults) -> list[dict[str, object]]:
    from counterpoint.studio.annotate import comparison

    if not found.kind.compares:
        return []
    first, second = found.campaign.source["sides"]
    return [
        {"group": row.group, "in": row.what, first: row.first, second: row.second, "tie": row.ties}
        for row in comparison(found)
    ]


def _print(found: CampaignResults) -> None:
    def number(value: float) -> str:
        return "-" if value != value else f"{value:.3f}"

    tally = found.tally
    say(
        f"{found.campaign.name}: {found.standing.given:,} of {found.standing.wanted:,} answers, "
        f"{counted(tally.judged, 'item')} judged"
        + ("" if found.kind.compares else f", {tally.accepted:,} accepted by most")
    )
    for row in _compared_rows(found):
        group, what, *sides = row.items()
        counts = ", ".join(f"{name} {count}" for name, count in sides)
        say(f"{group[1]}, better in {what[1]}: {counts}")
    if found.remarks:
        output.print(f"{found.skipped:,} skipped, {found.flagged:,} flagged by annotators")
    for on in found.agreement:
        say(f"agreement on {on.what}")
        for pair in on.pairs:
            items = counted(pair.items, "item")
            say(f"  {pair.a} and {pair.b}: kappa {number(pair.kappa)} over {items}")
        say(
            f"  mean kappa {number(on.mean)}, Fleiss {number(on.fleiss)}, "
            f"Krippendorff's alpha {number(on.alpha)}"
        )
    for person in found.people:
        if person.checks:
            out = ", not counted" if person.excluded else ""
            say(f"annotator {person.number}: {person.failed} of {person.checks} checks failed{out}")


for verb_name, verb in (("new", new), ("ls", ls), ("results", results)):
    app.command(verb_name)(plainly(verb))


# --- the studio itself ---------------------------------------------------------------------------


def studio(
    runs: Annotated[Path, typer.Option(help="Folder of the runs.")] = Path("runs"),
    db: Db = DEFAULT_DB,
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen at; 0: any free port.")
    ] = 8765,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            "-m",
            help="Model id for the playground; repeat for several. Default: world:base.",
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            help="Another host name of this machine that browsers may use; repeat for several."
        ),
    ] = None,
) -> None:
    """Start the studio: look at runs in a browser, try models on images, annotate.

    The link that is printed opens the studio as admin; do not share it. Example:

    counterpoint studio --runs runs -m world:base
    """
    from counterpoint._util.errors import DataError, MissingExtraError

    errors.print("Starting the studio ...")  # reading its packages takes seconds
    try:
        from counterpoint.studio import MODELS, create_app, open_database
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("counterpoint"):
            raise
        raise MissingExtraError("the studio", "studio") from None
    from counterpoint.studio import Guard, is_loopback, kept_key, serve

    if not runs.is_dir():
        raise DataError(
            "E-FOLDER-MISSING", f"{runs}: no such folder of runs; `{command('demo')}` makes one."
        )
    guard = Guard(key=kept_key(runs / ".studio-key"))
    database = open_database(db)
    names = [*(allow_host or ()), f"[{host}]" if ":" in host else host]
    app = create_app(runs, guard=guard, models=model or MODELS, database=database, hosts=names)
    if not is_loopback(host):
        warn(
            f"warning: {host} can be reached from other machines, and nothing is encrypted: the "
            "admin's link and the annotators' links can be read on the way."
        )
    try:
        serve(app, host, port, lambda base: _announce(base, guard.admin_token))
    finally:
        database.close()


def _announce(base: str, token: str) -> None:
    say(f"Studio: {base}/?token={token}")
    say("The link opens the studio as admin: do not share it. Ctrl-C ends the studio.")
