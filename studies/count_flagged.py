"""Count what the checks refuse: in published negatives, and in the world, where truth is known.

    python studies/count_flagged.py --world 20000
    python studies/count_flagged.py --negclip FILE.tsv --sugarcrepe FOLDER --examples 10
    python studies/count_flagged.py --hard-positives FOLDER
    python studies/count_flagged.py --pairs tests/generation/hard_pairs.csv
    python studies/count_flagged.py --said CAPTIONS.json

Published texts are first written in their caption's format, so that a lost capital hides nothing;
how many are not so already is counted too. `--examples` draws that many flagged and as many passed
pairs of each file. `--pairs` are labelled by hand: a fault is a pair with a wrong label.
"""

from __future__ import annotations

import argparse
import ast
import csv
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, get_args

import numpy as np

from counterpoint._util.english import article
from counterpoint.generation.checks.checking import (
    CHECKS,
    Claim,
    TextChange,
    check,
    like,
    normal,
    reasons,
)
from counterpoint.generation.drafts import TextSettings, make_by_rules
from counterpoint.generation.inputs.captions import open_captions
from counterpoint.generation.language.words import lemmas, role
from counterpoint.generation.pairs import Kind, Type
from counterpoint.world.grammar import (
    GrammarError,
    Phrase,
    Statement,
    holds,
    read,
    sample_caption,
)
from counterpoint.world.scenes import (
    ATTRIBUTES,
    CANONICAL,
    CONVERSE,
    KINDS,
    SHAPES,
    SYNONYMS,
    Scene,
    Thing,
    related,
    sample_scene,
)

TYPES: Final[tuple[Type, ...]] = get_args(Type)
_TOLD: Final = ("noun", "verb", "adjective", "number")


# --- published files ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    caption: str
    text: str
    type: Type


def negclip(path: Path) -> Iterator[Row]:
    """The negatives of NegCLIP's file: a column holds them as a Python list."""
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            for text in ast.literal_eval(row["neg_caption"]):
                yield Row(row["title"], text, "swap")


def sugarcrepe(path: Path) -> Iterator[Row]:
    """One subset of SugarCrepe; the file's name starts with the type."""
    kind = next(name for name in TYPES if path.stem.startswith(name))
    for row in json.loads(path.read_text(encoding="utf-8")).values():
        yield Row(row["caption"], row["negative_caption"], kind)


def count_file(name: str, rows: Iterable[Row], examples: int, seed: int) -> None:
    """Print how many negatives each check flags, by reason; a text may fail several."""
    counts: Counter[str] = Counter()
    flagged: list[tuple[str, Row]] = []
    passed: list[tuple[str, Row]] = []
    total = 0
    for row in rows:
        total += 1
        as_given = CHECKS["format"](TextChange(row.caption, row.text), Claim("negative", row.type))
        counts["as given, format"] += bool(as_given)
        text = like(row.caption, row.text)
        faults = reasons(row.caption, text, Claim("negative", row.type))
        counts.update(f"{check}: {reason}" for check, reason in faults.items())
        counts["any check but format"] += bool(set(faults) - {"format"})
        where = flagged if "meaning" in faults else passed
        where.append((faults.get("meaning", ""), replace(row, text=text)))
    print(f"\n{name}: {total} negatives")
    for reason, count in sorted(counts.items()):
        print(f"  {count:6d}  {100 * count / max(total, 1):5.1f} %  {reason}")
    chance = random.Random(seed)
    for what, found in (("flagged", flagged), ("passed", passed)):
        for reason, row in chance.sample(found, min(examples, len(found))):
            print(f"  {what} [{reason}]\n    {row.caption}\n    {row.text}")


def count_hard_positives(folder: Path) -> None:
    """Print what is refused of the published rewordings, and of the false captions both ways."""
    for part in ("attributes", "relations"):
        name = f"vl_checklist_{part}.json"
        rows = json.loads((folder / "data" / name).read_text(encoding="utf-8"))
        reworded = json.loads((folder / "swapped_data" / name).read_text(encoding="utf-8"))
        counts: Counter[tuple[str, str]] = Counter()
        for row, other in zip(rows, reworded, strict=True):
            caption = row["true_caption"]
            for what, text, claim in (
                ("rewording as positive", other["true_caption"], Claim("positive", "replace")),
                ("false as positive", row["false_caption"], Claim("positive", "replace")),
                ("false as negative", row["false_caption"], Claim("negative", "replace")),
            ):
                faults = reasons(caption, text, claim)
                counts.update((what, f"{check}: {why}") for check, why in faults.items())
                counts[what, "meaning passed"] += "meaning" not in faults
        print(f"\nhard positives, {part}: {len(rows)} rows")
        for (what, why), count in sorted(counts.items()):
            print(f"  {count:6d}  {what}  {why}")


def count_pairs(path: Path) -> None:
    """Print recall and precision of all checks on pairs whose labels are known, by half."""
    table: Counter[tuple[str, bool, bool]] = Counter()
    reasons_right: Counter[str] = Counter()
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            others = [normal(other) for other in row["others"].split("|") if other]
            kind: Kind = "negative" if row["kind"] == "negative" else "positive"
            claimed = next(name for name in TYPES if name == row["type"])
            verdict = check(row["caption"], row["text"], kind, claimed, others=others)
            table[row["half"], row["label"] == "wrong", bool(verdict.rejected)] += 1
            reason = verdict.rejected.partition(": ")[2]
            reasons_right[row["half"]] += reason in row["reasons"].split(";") and bool(reason)
    for half in sorted(reasons_right):
        _print_row(half, table)
        print(f"    refused for an acceptable reason: {reasons_right[half]}")


def count_said(path: Path) -> None:
    """Print how many made replacements another caption of the image says, by lemma.

    Once with all other captions known to the checks, once with the last one held apart.
    """
    sources = list(open_captions(str(path)).stream())
    others = {source.id: source.others for source in sources}
    for held in (0, 1):
        known = [s._replace(others=s.others[: len(s.others) - held]) for s in sources]
        made = make_by_rules(known, TextSettings("negative", ("crepe-replace", "svlc")))
        counts: Counter[tuple[str, str]] = Counter()
        for pair in made.pairs:
            if pair.type == "replace":
                asked = others[pair.source][-held:]  # all, or the one that was held apart
                counts[pair.method, "texts"] += 1
                counts[pair.method, "said"] += _is_said(pair.caption, pair.text, asked)
        print(f"\nother captions held apart: {held}")
        for (method, what), count in sorted(counts.items()):
            print(f"  {count:6d}  {100 * count / counts[method, 'texts']:6.2f} %  {method}: {what}")


def _is_said(caption: str, text: str, others: Iterable[str]) -> bool:
    new = [word for word in TextChange(caption, text).inserted if role(word) in _TOLD]
    said = {lemma for other in others for word in normal(other) for lemma in lemmas(word)}
    return bool(new) and all(lemmas(word) & said for word in new)


# --- the world ---------------------------------------------------------------------------------

_FIELDS: Final = {
    word: tuple(w for value in words for w in (value, SYNONYMS[value]))
    for words in ATTRIBUTES.values()
    for value in words
    for word in (value, SYNONYMS[value])
} | dict.fromkeys(SHAPES, SHAPES)
_RELATIONS: Final = tuple(w for r in CONVERSE for w in (r, SYNONYMS[r]))
_JOINT: Final = re.compile(
    "|".join([" and ", *(f" {r} " for r in sorted(_RELATIONS, key=len, reverse=True))])
)


@dataclass(frozen=True, slots=True)
class Said:
    """A caption of the world in three parts; phrases without their articles."""

    first: tuple[str, ...]
    joint: str
    second: tuple[str, ...]

    def __str__(self) -> str:
        words = [" ".join((_article(p, self.joint), *p)) for p in (self.first, self.second)]
        return f"{words[0]} {self.joint} {words[1]}"


def _article(phrase: tuple[str, ...], joint: str) -> str:
    if joint == "and":
        return "the"
    return article(phrase[0])


def _said(caption: str) -> Said:
    match = _JOINT.search(caption)
    assert match is not None
    first, second = caption[: match.start()].split(), caption[match.end() :].split()
    return Said(tuple(first[1:]), match[0].strip(), tuple(second[1:]))


def _replace_word(said: Said, chance: random.Random) -> Said:
    which = chance.choice(("first", "second"))
    words = list(getattr(said, which))
    place = chance.randrange(len(words))
    words[place] = chance.choice(_FIELDS[words[place]])
    if which == "first":
        return replace(said, first=tuple(words))
    return replace(said, second=tuple(words))


def _replace_relation(said: Said, chance: random.Random) -> Said:
    return said if said.joint == "and" else replace(said, joint=chance.choice(_RELATIONS))


def _swap_words(said: Said, chance: random.Random) -> Said:
    """Any word of one phrase with any of the other: what is no caption is dropped later."""
    first, second = list(said.first), list(said.second)
    i, j = chance.randrange(len(first)), chance.randrange(len(second))
    first[i], second[j] = second[j], first[i]
    return replace(said, first=tuple(first), second=tuple(second))


def _swap_inside(said: Said, chance: random.Random) -> Said:
    """Two adjectives of one phrase."""
    if len(said.first) < 3:
        return said
    words = list(said.first)
    words[0], words[1] = words[1], words[0]
    return replace(said, first=tuple(words))


def _swap_phrases(said: Said, chance: random.Random) -> Said:
    return Said(said.second, said.joint, said.first)


def _turn(said: Said, chance: random.Random) -> Said:
    """The arguments exchanged, and any relation, often the converse."""
    if said.joint == "and":
        return said
    back = CONVERSE[CANONICAL[said.joint]]
    joint = chance.choice((back, SYNONYMS[back], *_RELATIONS))
    return Said(said.second, joint, said.first)


_EDITS: Final[dict[str, tuple[Type, Callable[[Said, random.Random], Said]]]] = {
    "replace a word": ("replace", _replace_word),
    "replace the relation": ("replace", _replace_relation),
    "swap two words": ("swap", _swap_words),
    "swap adjectives of a phrase": ("swap", _swap_inside),
    "swap the phrases": ("swap", _swap_phrases),
    "swap the phrases, change the relation": ("paraphrase", _turn),
}


def _canonical(statement: Statement) -> tuple[object, ...]:
    """The same for statements that say the same: "and" has no order, "right of" is a left of."""
    first, second, relation = statement.first, statement.second, statement.relation
    if relation is None:
        return (None, *sorted((repr(first), repr(second))))
    if relation in ("right of", "below"):
        first, second, relation = second, first, CONVERSE[relation]
    return (relation, repr(first), repr(second))


def _thing(phrase: Phrase, rng: np.random.Generator) -> Thing:
    thing = replace(sample_scene(rng).things[0], shape=phrase.shape)
    for kind in KINDS:
        value = phrase.value(kind)
        thing = thing if value is None else thing.with_value(kind, value)
    return thing


def _scene_of(statement: Statement, rng: np.random.Generator) -> Scene:
    """A scene in which the statement holds, random otherwise."""
    while True:
        scene = sample_scene(rng)
        things = [_thing(statement.first, rng), _thing(statement.second, rng)]
        places = [(t.x, t.y) for t in scene.things]
        placed = [t.at(p) for t, p in zip(things, places, strict=False)]
        if statement.relation is None or related(placed[0], statement.relation, placed[1]):
            return Scene((*placed, *scene.things[2:]), scene.ground)


def _agree(one: Statement, two: Statement, rng: np.random.Generator) -> bool:
    """Whether two statements hold in the same of 40 scenes, half of them made for each."""
    return all(
        holds(one, scene) == holds(two, scene)
        for made_for in (one, two)
        for scene in (_scene_of(made_for, rng) for _ in range(20))
    )


def _candidates(size: int, seed: int) -> Iterator[tuple[str, Type, str, str]]:
    rng, chance = np.random.default_rng(seed), random.Random(seed)
    names = tuple(_EDITS)
    made = 0
    while made < size:
        caption = sample_caption(sample_scene(rng), rng, synonym=0.3)
        name = names[made % len(names)]
        kind, edit = _EDITS[name]
        text = str(edit(_said(caption), chance))
        try:
            read(text)
        except GrammarError:
            continue
        if text != caption:
            made += 1
            yield name, kind, caption, text


def measure_world(size: int, examples: int, seed: int) -> None:
    """Print precision and recall of `meaning` for negatives and for positives."""
    rng = np.random.default_rng((seed, 1))
    tables: dict[str, Counter[tuple[str, bool, bool]]] = {
        "negative": Counter(),
        "positive": Counter(),
    }
    wrong: list[str] = []
    disagreements = 0
    for name, kind, caption, text in _candidates(size, seed):
        one, two = read(caption), read(text)
        same = _canonical(one) == _canonical(two)
        disagreements += same != _agree(one, two, rng)
        change = TextChange(caption, text)
        for claimed, fault in (("negative", same), ("positive", not same)):
            said = CHECKS["meaning"](
                change, Claim("negative" if claimed == "negative" else "positive", kind)
            )
            tables[claimed][name, fault, bool(said)] += 1
            if fault != bool(said):
                wrong.append(f"  {claimed} [{said}] {caption} | {text}")
    print(f"\nworld: {size} candidates; scenes contradict the grammar in {disagreements}")
    for claimed, table in tables.items():
        print(f"claimed {claimed}: a fault is a text that is none")
        for name in (*_EDITS, "all"):
            _print_row(name, table)
    for line in random.Random(seed).sample(wrong, min(examples, len(wrong))):
        print(line)


def _print_row(name: str, table: Counter[tuple[str, bool, bool]]) -> None:
    cells = {
        (fault, said): sum(
            n
            for (edit, f, s), n in table.items()
            if name in ("all", edit) and (f, s) == (fault, said)
        )
        for fault in (True, False)
        for said in (True, False)
    }
    faults, flagged = cells[True, True] + cells[True, False], cells[True, True] + cells[False, True]
    precision = 100 * cells[True, True] / flagged if flagged else float("nan")
    recall = 100 * cells[True, True] / faults if faults else float("nan")
    print(
        f"  {name:38s} n {sum(cells.values()):6d}  faults {faults:6d}  flagged {flagged:6d}  "
        f"precision {precision:5.1f}  recall {recall:5.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--negclip", type=Path, help="valid_neg_clip.tsv")
    parser.add_argument("--sugarcrepe", type=Path, help="the folder of its seven JSON files")
    parser.add_argument("--hard-positives", type=Path, help="folder of data and swapped_data")
    parser.add_argument("--pairs", type=Path, help="pairs labelled by hand, hard_pairs.csv")
    parser.add_argument("--said", type=Path, help="captions, one row per image with a list of them")
    parser.add_argument("--world", type=int, default=0, help="how many candidates to make")
    parser.add_argument("--examples", type=int, default=0, help="how many to print")
    parser.add_argument("--seed", type=int, default=0, help="of the world and of the examples")
    arguments = parser.parse_args()
    if arguments.world:
        measure_world(arguments.world, arguments.examples, arguments.seed)
    if arguments.negclip:
        count_file("NegCLIP", negclip(arguments.negclip), arguments.examples, arguments.seed)
    if arguments.said:
        count_said(arguments.said)
    if arguments.pairs:
        count_pairs(arguments.pairs)
    if arguments.hard_positives:
        count_hard_positives(arguments.hard_positives)
    if arguments.sugarcrepe:
        for path in sorted(arguments.sugarcrepe.glob("*.json")):
            name = f"SugarCrepe {path.stem}"
            count_file(name, sugarcrepe(path), arguments.examples, arguments.seed)


if __name__ == "__main__":
    main()
