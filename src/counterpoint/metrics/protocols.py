"""Protocols: the choices that move a published number, pinned as named values.

A protocol says what a tie is worth, how cases are averaged, how captions are written, which groups
are left out and what happens to captions that do not fit the model. It is stored with every run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from counterpoint._util.errors import NotFoundError
from counterpoint._util.registry import did_you_mean
from counterpoint.cases import Cases, gallery_rows
from counterpoint.metrics.definitions import Tie

# The relations that ARO's notebook removes before it averages VG-Relation. It calls them symmetric;
# some are ("next to"), many are only rare ("skiing down").
UNCOUNTED_RELATIONS: Final = frozenset(
    name.strip()
    for name in """
adjusting, attached to, between, bigger than, biting, boarding, brushing, chewing, cleaning,
climbing, close to, coming from, coming out of, contain, crossing, dragging, draped over,
drinking, drinking from, driving, driving down, driving on, eating from, eating in, enclosing,
exiting, facing, filled with, floating in, floating on, flying, flying above, flying in, flying
over, flying through, full of, going down, going into, going through, grazing in, growing in,
growing on, guiding, hanging from, hanging in, hanging off, hanging over, higher than, holding
onto, hugging, in between, jumping off, jumping on, jumping over, kept in, larger than, leading,
leaning over, leaving, licking, longer than, looking in, looking into, looking out, looking
over, looking through, lying next to, lying on top of, making, mixed with, mounted on, moving,
on the back of, on the edge of, on the front of, on the other side of, opening, painted on,
parked at, parked beside, parked by, parked in, parked in front of, parked near, parked next to,
perched on, petting, piled on, playing, playing in, playing on, playing with, pouring, reaching
for, reading, reflected on, riding on, running in, running on, running through, seen through,
sitting behind, sitting beside, sitting by, sitting in front of, sitting near, sitting next to,
sitting under, skiing down, skiing on, sleeping in, sleeping on, smiling at, sniffing,
splashing, sprinkled on, stacked on, standing against, standing around, standing behind,
standing beside, standing in front of, standing near, standing next to, staring at, stuck in,
surrounding, swimming in, swinging, talking to, topped with, touching, traveling down, traveling
on, tying, typing on, underneath, wading in, waiting for, walking across, walking by, walking
down, walking next to, walking through, working in, working on, worn on, wrapped around, wrapped
in, by, of, near, next to, with, beside, on the side of, around
""".replace("\n", " ").split(",")
)


DEEPEST: Final = -1
# An average is a nested mean over the levels of the group label (`replace/obj` has two levels):
# () is over cases; (1,) over the first level's means; (1, DEEPEST) over the first level's means of
# their subgroups' means. All four are used for SugarCrepe, and differ by several points.
AVERAGES: Final[dict[str, tuple[int, ...]]] = {
    "micro": (),
    "macro": (DEEPEST,),
    "types": (1,),
    "types-macro": (1, DEEPEST),
    "nested": (1, 2, 3, DEEPEST),
}

# Labels that loaders give to cases which an official protocol does not count.
FIRST_ROWS: Final = 1_000  # rows of a file
BEYOND_FIRST: Final = "beyond the first 1,000"
NO_IMAGE: Final = "no image"  # and the next row of the file takes its place
UNCONFIRMED: Final = "unconfirmed"
SEED: Final = "seed "  # and its number: the cases that were drawn with it

Overlong = Literal["leave out", "cut"]


@dataclass(frozen=True, slots=True)
class Protocol:
    """How scores become a number.

    `exclude` names groups that are scored and not counted, `skip` groups that are not scored,
    `min_count` the number of cases that a group needs to enter an average. `overlong` says whether
    a caption beyond the model's context is cut (and counted) or its case is left out (and named).
    """

    name: str
    summary: str
    tie: Tie = "wrong"
    average: str = "micro"
    averages: tuple[str, ...] = ("micro", "macro")
    caption_format: str = "raw"
    exclude: frozenset[str] = field(default_factory=frozenset)
    skip: frozenset[str] = field(default_factory=frozenset)
    min_count: int = 0
    overlong: Overlong = "leave out"

    def most_of(self, count: int | None) -> int | None:
        """How many cases of a file are scored, if it holds `count`; None if that is unknown."""
        return min(count, FIRST_ROWS) if count is not None and BEYOND_FIRST in self.skip else count

    def describe(self) -> str:
        parts = [f"ties {self.tie}", f"{self.average} average", f"{self.caption_format} captions"]
        if self.exclude:
            parts.append(f"{len(self.exclude)} groups excluded")
        if self.skip:
            parts.append(f"only cases outside of {', '.join(sorted(self.skip))}")
        if self.min_count:
            parts.append(f"groups of at least {self.min_count}")
        parts.append(f"overlong captions {'cut' if self.overlong == 'cut' else 'left out'}")
        return f"{self.name}: " + ", ".join(parts)


PROTOCOLS: Final[dict[str, Protocol]] = {
    protocol.name: protocol
    for protocol in (
        Protocol(
            "strict",
            "Ours: strict comparison, raw captions, no caption cut.",
        ),
        Protocol(
            "half", "Strict, but a tie is half right: fair to baselines that often tie.", tie="half"
        ),
        Protocol("hard-positives", "Kamath et al. 2024: strict comparison, mean over cases."),
        Protocol(
            "sugarcrepe",
            "Hsieh et al. 2023: strict comparison, mean over cases; papers use four averages.",
            averages=("micro", "macro", "types", "types-macro"),
        ),
        Protocol(
            "bivlc", "Miranda et al. 2024 and Winoground: strict comparison, mean over cases."
        ),
        Protocol(
            "vg-relation",
            "Yuksekgonul et al. 2023: ties wrong, mean of the relations outside the authors' list.",
            average="macro",
            exclude=UNCOUNTED_RELATIONS,
        ),
        Protocol(
            "vg-attribution",
            "Yuksekgonul et al. 2023: ties wrong, mean of the attribute pairs of 25 cases or more.",
            average="macro",
            min_count=25,
        ),
        Protocol(
            "aro-order",
            "Yuksekgonul et al. 2023, COCO and Flickr30k order: a tie is right, captions cleaned.",
            tie="right",
            caption_format="aro",
            overlong="cut",
        ),
        Protocol(
            "crepe",
            "Ma et al. 2023: recall@k per complexity, long captions cut to the context.",
            average="types-macro",
            averages=("micro", "macro", "types-macro"),
            overlong="cut",
        ),
        Protocol(
            "vl-checklist",
            "Zhao et al. 2022: of each file the first 1,000 cases with an image, means of means.",
            average="nested",
            averages=("micro", "macro", "types", "nested"),
            skip=frozenset({BEYOND_FIRST, NO_IMAGE}),
        ),
        Protocol(
            "sugarcrepe-pp",
            "Dumpala et al. 2024: strict comparison, per subset; the mean is over cases.",
            averages=("micro", "macro", "types", "types-macro"),
        ),
        Protocol(
            "valse",
            "Parcalabescu et al. 2022: items that two of three people confirmed, mean of pieces.",
            average="macro",
            exclude=frozenset({UNCONFIRMED}),
        ),
        Protocol(
            "whatsup",
            "Kamath et al. 2023: a tie is right; mean of A and B, or of one and two objects.",
            tie="right",
            average="types",
            averages=("micro", "types"),
        ),
        Protocol(
            "svo-probes",
            "Hendricks and Nematzadeh 2021, of two images the right one: strict, over cases.",
            exclude=frozenset({"several"}),
        ),
        Protocol(
            "eqben",
            "Wang et al. 2023: strict comparison by part, as Winoground; mean over the parts.",
            average="macro",
        ),
        Protocol(
            "spec",
            "Peng et al. 2024: strict comparison, mean of the six subsets.",
            average="macro",
        ),
        Protocol(
            "imagecode",
            "Krojer et al. 2022: strict comparison over cases, long descriptions cut.",
            overlong="cut",
        ),
        Protocol(
            "retrieval",
            "Recall@k over the Karpathy test split as is usual for CLIP: raw captions, ties wrong.",
            overlong="cut",
        ),
        Protocol(
            "aro-retrieval",
            "Yuksekgonul et al. 2023: all captions, cleaned, cut at 30 words and then shuffled.",
            caption_format="aro, then shuffled",
            overlong="cut",
        ),
        Protocol(
            "classification", "Accuracy over images; prompts averaged as vectors, ties wrong."
        ),
        Protocol(
            "vtab",
            "Zhai et al. 2019, zero-shot: accuracy over the images of a task, mean over tasks.",
            average="macro",
            averages=("micro", "macro", "types", "types-macro"),
        ),
        Protocol("probe", "Accuracy over test images of a classifier that is fitted to vectors."),
    )
}


ONE, SEVERAL, GALLERY = "one image", "several images", "galleries"
# Which cases the official protocols of papers are for; the others take any.
_ONLY: Final = {
    **dict.fromkeys(("hard-positives", "sugarcrepe", "vg-relation", "vg-attribution"), ONE),
    **dict.fromkeys(("aro-order", "crepe", "vl-checklist", "valse", "whatsup"), ONE),
    **dict.fromkeys(("bivlc", "eqben", "svo-probes", "imagecode"), SEVERAL),
    **dict.fromkeys(("retrieval", "aro-retrieval", "classification", "vtab", "probe"), GALLERY),
}


def misfit(protocol: Protocol, cases: Cases) -> str:
    """Which cases a protocol is not for, of those that are there; empty if it is for all."""
    wanted = _ONLY.get(protocol.name)
    galleries, single = gallery_rows(cases), cases.image_counts == 1
    kinds = {GALLERY: galleries, ONE: ~galleries & single, SEVERAL: ~galleries & ~single}
    there = [kind for kind, rows in kinds.items() if rows.any()]
    return "" if wanted is None else " and ".join(kind for kind in there if kind != wanted)


def get_protocol(name: str | Protocol) -> Protocol:
    """A protocol by its name; a protocol itself is returned as it is."""
    if isinstance(name, Protocol):
        return name
    if name not in PROTOCOLS:
        raise NotFoundError("E-PROTOCOL-UNKNOWN", did_you_mean("protocol", name, PROTOCOLS))
    return PROTOCOLS[name]
