"""What the majority accepted, as a file; all answers as CSV."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import polars as pl
from sqlalchemy import select
from sqlalchemy.orm import Session

from counterpoint._util.errors import DataError
from counterpoint._util.writing import whole_file
from counterpoint.cases import Cases, write_cases
from counterpoint.runs import file_digest
from counterpoint.studio.annotate.assignment import Judgement, newest
from counterpoint.studio.annotate.human import in_full
from counterpoint.studio.annotate.questions import (
    ASKS,
    NONE,
    RANK,
    SKIP,
    AnnotationQuestion,
    JudgedCase,
    ranks_of,
)
from counterpoint.studio.annotate.results import (
    CampaignResults,
    comparison,
    is_accepted,
    majority,
    votes,
)
from counterpoint.studio.database import Annotator, Answer, Campaign, Flag, Item, Showing


@dataclass(frozen=True, slots=True)
class Exported:
    """How many rows were written, and how many were not, by the reason."""

    rows: int
    left_out: Counter[str]


def export(outcome: CampaignResults, out: Path) -> Exported:
    """Write the accepted cases as a case file, or the accepted pairs as a pairs file.

    Of a comparison of texts: a table of how many were preferred, as published numbers are written.
    """
    if outcome.kind.compares:
        return _export_comparison(outcome, out)
    if out.suffix != ".parquet":
        raise DataError(
            "E-FILE-ENDING", f"{out}: written as Parquet; the name must end in .parquet."
        )
    write = _export_pairs if outcome.campaign.source["type"] == "pairs" else _export_cases
    return write(outcome, out)


_COMPARED: Final = ("model", "benchmark", "group", "metric", "value", "items")


def _export_comparison(outcome: CampaignResults, out: Path) -> Exported:
    """Like the published rows of `other/text-comparison`: per cent of the items of a group."""
    if out.suffix != ".csv":
        raise DataError("E-FILE-ENDING", f"{out}: written as CSV; the name must end in .csv.")
    found = comparison(outcome)
    if not found:
        raise _nothing(outcome, Counter({"not judged yet": len(outcome.subjects)}))
    first, second = outcome.campaign.source["sides"]
    written = 0
    with whole_file(out) as draft, draft.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(_COMPARED)
        for row in found:
            for side, count in ((first, row.first), (second, row.second), ("Tie", row.ties)):
                value = round(100 * count / row.items, 2)
                about = (f"{row.group}/{row.what}", "preferred", value, row.items)
                table.writerow((side, "other/text-comparison", *about))
                written += 1
    return Exported(written, Counter())


def _verdicts(
    outcome: CampaignResults, left_out: Counter[str]
) -> Iterator[tuple[JudgedCase, list[list[Judgement]]]]:
    """Every subject of which all questions were answered and accepted, with its answers."""
    said = votes(outcome.kept)
    for number, subject in outcome.subjects.items():
        answers = [said.get(item, []) for item in outcome.wanted[number]]
        if not all(answers):
            left_out["not judged yet"] += 1
        elif all(is_accepted(each) for each in answers):
            yield subject, answers
        else:
            left_out["not accepted by most"] += 1


def _export_cases(outcome: CampaignResults, out: Path) -> Exported:
    left_out: Counter[str] = Counter()
    folder = out.absolute().parent
    accepted = (subject for subject, _ in _verdicts(outcome, left_out))
    cases = [in_full(subject.case, subject.roots, str(folder)) for subject in accepted]
    if not cases:
        raise _nothing(outcome, left_out)
    with whole_file(out) as draft:
        write_cases(Cases.build(cases, root=folder, source=str(out)), draft)
    return Exported(len(cases), left_out)


def _nothing(outcome: CampaignResults, left_out: Counter[str]) -> DataError:
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in left_out.items())
    return DataError(
        "E-CAMPAIGN-UNANSWERED",
        f"campaign {outcome.campaign.name!r}: nothing to export ({reasons}).",
    )


# --- pairs -------------------------------------------------------------------------------------


def _export_pairs(outcome: CampaignResults, out: Path) -> Exported:
    from counterpoint.generation import SCHEMA, read_about, read_pairs, rebased, write_pairs

    source = Path(outcome.campaign.source["source"])
    if not source.is_file() or file_digest(source) != outcome.campaign.source["digest"]:
        raise DataError(
            "E-FILE-CHANGED",
            f"{source}: not the pairs file that the campaign {outcome.campaign.name!r} was made "
            "from; put it back first.",
        )
    left_out: Counter[str] = Counter()
    rows = _accepted_rows(outcome, left_out)
    if not rows:
        raise _nothing(outcome, left_out)
    chosen = pl.DataFrame(
        {"row": list(rows), "best": list(rows.values())},
        schema={"row": pl.UInt32, "best": pl.String},
    )

    numbered = read_pairs(source).with_row_index("row")
    found = numbered.join(chosen, on="row", how="inner", maintain_order="left")
    best = pl.coalesce("best", "text_image").alias("text_image")
    kept = rebased(found.with_columns(best).select(SCHEMA.names()), source, out)
    about = dict(read_about(source))
    about["campaign"] = {
        "name": outcome.campaign.name,
        "kind": outcome.campaign.kind,
        "accepted": len(rows),
        "left_out": dict(left_out),
    }
    about.setdefault("root", str(source.absolute().parent))
    return Exported(write_pairs(out, [kept], about), left_out)


def _accepted_rows(outcome: CampaignResults, left_out: Counter[str]) -> dict[int, str | None]:
    """Rows of the pairs file that most accepted, each with the image that was chosen for it."""
    if RANK in outcome.kind.asks:
        return dict.fromkeys(_ranked_rows(outcome, left_out))
    found: dict[int, str | None] = {}
    for subject, [first, *_] in _verdicts(outcome, left_out):
        [row] = [row for row in subject.rows if row >= 0]
        found[row] = None
        if outcome.kind.any_or_none:  # the image that was chosen most often; of several, the first
            counts = Counter(int(one.value) for one in first if one.value != NONE)
            number = min(counts, key=lambda option: (-counts[option], option))
            found[row] = subject.case.images[number].path
    return found


def _ranked_rows(outcome: CampaignResults, left_out: Counter[str]) -> Iterator[int]:
    """Each text by itself: a negative that most put below the caption, a positive that most put

    above every negative (or, where there is none, level with the caption or above).
    """
    said = votes(outcome.kept)
    for number, subject in outcome.subjects.items():
        answers = [ranks_of(one.value) for one in said.get(outcome.wanted[number][0], [])]
        truth = subject.case.truth[0]
        for caption, row in enumerate(subject.rows):
            if row < 0:
                continue
            if not answers:
                left_out["not judged yet"] += 1
            elif majority([_fits(ranks, truth, caption) for ranks in answers]):
                yield row
            else:
                left_out["not accepted by most"] += 1


def _fits(ranks: list[int], truth: tuple[bool, ...], caption: int) -> bool:
    if not truth[caption]:
        return ranks[0] < ranks[caption]
    negatives = [rank for rank, true in zip(ranks, truth, strict=True) if not true]
    return ranks[caption] < min(negatives) if negatives else ranks[caption] <= ranks[0]


# --- all answers -------------------------------------------------------------------------------

COLUMNS: Final = (
    *("campaign", "annotator", "number", "item", "ask", "check", "layout"),
    *("value", "right", "revision", "counts", "shown", "given", "flag"),
)


def answer_rows(session: Session, campaign: Campaign) -> Iterator[dict[str, Any]]:
    """Every answer ever given, those that were changed too; the last of each showing counts.

    A skipped item is neither right nor wrong. A flag's note is written as JSON: within its
    quotation marks no spreadsheet takes it for a formula.
    """
    rows = session.execute(
        select(Annotator.number, Item, Showing, Answer, Flag.note)
        .join(Showing, Showing.annotator_id == Annotator.id)
        .join(Item, Item.id == Showing.item_id)
        .join(Answer, Answer.showing_id == Showing.id)
        .outerjoin(Flag, Flag.id == newest(Flag))
        .where(Annotator.campaign_id == campaign.id)
        .order_by(Annotator.number, Showing.number, Answer.revision.desc())
    )
    latest: int | None = None
    for annotator, item, showing, answer, note in rows:
        known = AnnotationQuestion.of(item.question).right
        skipped = answer.value == SKIP
        yield {
            "campaign": campaign.name,
            "annotator": annotator,
            "number": showing.number,
            "item": item.key,
            "ask": item.ask,
            "check": int(item.is_check),
            "layout": json.dumps(showing.layout),
            "value": answer.value,
            "right": "" if skipped else int(ASKS[item.ask].is_right(answer.value, known)),
            "revision": answer.revision,
            "counts": int(latest != showing.id),
            "shown": showing.shown.isoformat(timespec="seconds"),
            "given": answer.given.isoformat(timespec="seconds"),
            "flag": "" if note is None else json.dumps(note, ensure_ascii=False),
        }
        latest = showing.id


def answers_csv(session: Session, campaign: Campaign) -> str:
    """All answers as CSV, with a header."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(answer_rows(session, campaign))
    return text.getvalue()
