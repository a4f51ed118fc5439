"""Phrases of captions that say the same: "filled with" and "full of".

A saying has old and new words, and what has to stand around them. "~" marks a verb, which keeps its
form: "~do" matches "does" and "doing". Nouns are looked up with their kinds: "animal" is said of
every dog. Each saying is true both for what the photograph shows and for every caption that meets
its conditions: a pair that only holds most of the time has no place here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from counterpoint.generation.language.sentences import (
    ADJECTIVES,
    NOUNS,
    Put,
    Sentence,
    in_form_of,
    word_set,
)
from counterpoint.generation.rules.clauses import kinds
from counterpoint.generation.rules.edits import Rewording, is_repeated
from counterpoint.generation.rules.phrases import object_of

_ANY: Final = frozenset({"*"})
_NOTHING: Final = frozenset({"", "lot", "lots"})
_STOPS: Final = frozenset({"", ".", ",", "and", "while"})
_PLACES: Final = word_set("in on at near under by next beside behind inside outside over above")
_PATHS: Final = word_set("down up along through across around past off into onto over")
_END: Final = _STOPS | _PLACES | _PATHS


_BARE: Final = NOUNS | ADJECTIVES | {"VBN", "VBG"}  # no article: not "full of a lot of"
_PLURAL: Final = frozenset({"NNS"})
_ALIVE: Final = frozenset({"people", "animal"})


class Saying(NamedTuple):
    """Old words, new words, the kind of change, and conditions.

    `subject`: kinds of the noun before, with "is" between or not; "*" for any noun. `object`: kinds
    of the noun of the phrase that follows. `follows`: the next word ("" for the end). `after`: what
    the word before is, or its lemma. `verb`: the closest verb before. `needs`: one of these lemmas
    is in the caption. `unless`: the word before is one of these.
    """

    old: str
    new: str
    subtype: str
    subject: frozenset[str] = frozenset()
    object: frozenset[str] = frozenset()
    follows: frozenset[str] = frozenset()
    after: frozenset[str] = frozenset()
    verb: frozenset[str] = frozenset()
    needs: frozenset[str] = frozenset()
    unless: frozenset[str] = frozenset()


def _both(one: str, other: str, subtype: str, **conditions: frozenset[str]) -> tuple[Saying, ...]:
    return (
        Saying(one, other, subtype, **conditions),
        Saying(other, one, subtype, **conditions),
    )


_WAYS: Final = word_set("street road sidewalk path pathway track highway trail avenue beach runway")
_MOVING: Final = word_set(
    "walk ride drive go travel run move skate skateboard bike stroll jog cycle race roll cruise"
)
_SNOWED: Final = word_set(
    "slope hill hillside mountain mountainside field ground road street trail"
)
_GRAZING: Final = word_set("livestock cattle zebra antelope deer buffalo")
_TRICKS: Final = word_set("trick stunt jump flip")
_SPORTS: Final = word_set(
    "tennis baseball soccer frisbee basketball football volleyball chess polo rugby cricket golf"
)
_OUTFITS: Final = word_set("suit uniform costume outfit clothing dress robe gown attire")
_YOUNG: Final = word_set("girl girls boy boys child children kid kids")
_CLIMBED: Final = word_set(
    "wall stairs stair step hill mountain tree rock ladder rope cliff pole tower side hillside"
)
_SLOPES: Final = word_set("hill slope mountain stairs stair step staircase hillside mountainside")
_CARRIERS: Final = word_set("bus train subway airplane plane boat ferry ship")
_STAYING: Final = word_set(
    "sit stand play eat lie lay park walk run sleep pose work gather graze relax dine rest"
)
_PHONES: Final = word_set("phone cellphone telephone")
_LYING: Final = word_set("on in next near under beside by inside at")
_FLYERS: Final = word_set("bird airplane plane jet")

SAYINGS: Final[tuple[Saying, ...]] = (
    Saying("filled with", "full of", "att", subject=_ANY, object=_ANY, follows=_BARE),
    Saying("full of", "filled with", "att", subject=_ANY, object=_ANY),
    *_both("covered in", "covered with", "att", subject=_ANY, object=_ANY, follows=_BARE),
    Saying("grassy field", "field of grass", "att", follows=_END - {"and"}),
    Saying("field of grass", "grassy field", "att", follows=_END - {"and", ","}),
    Saying("snow covered", "snowy", "att", follows=_SNOWED),
    Saying("snow - covered", "snowy", "att", follows=_SNOWED),
    Saying("snowy", "snow-covered", "att", follows=_SNOWED),
    Saying("little", "young", "att", follows=_YOUNG),
    Saying("various", "different", "att", object=frozenset({"thing"}), follows=_PLURAL),
    *_both("types of", "kinds of", "att"),
    *_both("type of", "kind of", "att", after=frozenset({"some", "a", "any", "this", "one"})),
    Saying("a bunch of", "a group of", "att", object=_ALIVE, unless=word_set("are were")),
    *_both("asleep", "sleeping", "rel", subject=_ALIVE, follows=_END),
    *_both("during the day", "in the daytime", "rel"),
    Saying("for a photo", "for a picture", "rel", after=frozenset({"pose", "smile", "stop"})),
    *_both("next to each other", "side by side", "rel"),
    Saying("next to one another", "side by side", "rel"),
    Saying("in mid air", "in the air", "rel"),
    Saying("in midair", "in the air", "rel"),
    Saying("in mid - air", "in the air", "rel"),
    Saying("in the center of", "in the middle of", "rel"),
    Saying("outside", "outdoors", "rel", follows=_END - _PATHS, after=_STAYING),
    Saying("outdoors", "outside", "rel", follows=_END, after=_STAYING),
    Saying("on display", "displayed", "rel", subject=_ANY, follows=word_set("in at on")),
    Saying("in flight", "flying", "rel", subject=_FLYERS),
    Saying("flying", "in flight", "rel", subject=_FLYERS, follows=word_set("over above near .")),
    Saying("lying down", "lying", "rel", follows=_LYING),
    Saying("sitting down", "sitting", "rel", follows=_LYING),
    Saying("~kneel down", "~kneel", "rel"),
    Saying("down", "along", "rel", object=_WAYS, verb=_MOVING),
    *_both("~do", "~perform", "rel", object=_TRICKS),
    *_both("~talk on", "~speak on", "rel", object=_PHONES),
    *_both("~talk to", "~speak to", "rel", object=frozenset({"people"})),
    *_both("~get ready to", "~prepare to", "rel"),
    *(
        Saying(f"~take {taken} of", "~photograph", "rel", object=_ANY)
        for taken in ("a picture", "a photo", "pictures", "photos")
    ),
    Saying("~photograph", "~take a picture of", "rel", object=_ANY),
    Saying("~play a game of", "~play", "rel", object=_SPORTS),
    *(
        Saying(f"~ride {board}", f"~{verb}", "rel", subject=_ANY, follows=_STOPS | _PATHS | _PLACES)
        for one, verb in (
            ("skateboard", "skateboard"),
            ("snowboard", "snowboard"),
            ("surfboard", "surf"),
            ("bicycle", "cycle"),
        )
        for board in (f"a {one}", f"his {one}", f"her {one}", f"{one}s", f"their {one}s")
    ),
    Saying("~ride", "~surf", "rel", object=frozenset({"wave"}), needs=word_set("surfboard")),
    Saying("~surf", "~ride", "rel", object=frozenset({"wave"})),
    Saying("~eat grass", "~graze", "rel", subject=_GRAZING, follows=_END),
    Saying("~graze on", "~feed on", "rel", object=word_set("grass hay leaf")),
    Saying("~leap", "~jump", "rel", follows=_END | {"to", "for", "from", "high"}),
    Saying("~jump", "~leap", "rel", follows=frozenset({"over", "into"})),
    Saying("~climb up", "~climb", "rel", object=_CLIMBED),
    Saying("~go down", "~descend", "rel", object=_SLOPES),
    Saying("~descend", "~go down", "rel", object=_SLOPES),
    *_both("~get on", "~board", "rel", object=_CARRIERS),
    *_both(
        "~pull into", "~arrive at", "rel", subject=frozenset({"train"}), object=word_set("station")
    ),
    Saying("~take a nap", "~nap", "rel", follows=_END),
    Saying(
        "dressed in", "wearing", "rel", subject=frozenset({"people"}), object=frozenset({"clothes"})
    ),
    Saying("wearing", "dressed in", "rel", subject=frozenset({"people"}), object=_OUTFITS),
)


def _by_first() -> dict[str, list[tuple[list[str], Saying]]]:
    found: dict[str, list[tuple[list[str], Saying]]] = {}
    for saying in sorted(SAYINGS, key=lambda saying: -len(saying.old.split())):
        words = saying.old.split()
        found.setdefault(words[0], []).append((words, saying))
    return found


_BY_FIRST: Final = _by_first()
_VERBS: Final = {first[1:]: found for first, found in _BY_FIRST.items() if first[0] == "~"}


@lru_cache(1)  # asked for each subtype
def sayings(sentence: Sentence) -> tuple[tuple[str, Rewording], ...]:
    """The edits that fit a caption, each with its subtype."""
    return tuple(_found(sentence))


def _found(sentence: Sentence) -> Iterator[tuple[str, Rewording]]:
    lemmas = sentence.lemmas
    for place, token in enumerate(sentence.tokens):
        known = _VERBS.get(lemmas[place]) if token.pos == "VERB" else None
        for words, saying in known or _BY_FIRST.get(token.lower) or ():
            if _matches(sentence, place, words):
                edit = _edit(sentence, place, place + len(words), saying)
                if edit is not None:
                    yield saying.subtype, edit
                    break  # the longest


def _matches(sentence: Sentence, place: int, words: Sequence[str]) -> bool:
    tokens = sentence.tokens
    return place + len(words) <= len(tokens) and all(
        tokens[place + i].lower == words[i] for i in range(1, len(words))
    )


def _edit(sentence: Sentence, start: int, end: int, saying: Saying) -> Rewording | None:
    token = sentence.tokens[start]
    new = saying.new
    if new[0] == "~":
        old = saying.old.split()[0].removeprefix("~")
        if in_form_of(token, old).lower() != token.lower:
            return None  # the tag is wrong, and so the form of the new verb would be
        new = in_form_of(token, new[1:])
    elif len(token.text) > 1 and token.text.isupper():
        new = new.upper()
    if not new or not _fits(sentence, start, end, saying):
        return None
    if is_repeated(sentence, (start, end), saying.old, saying.new.lstrip("~")):
        return None
    return Rewording(Put(start, end, new), saying.old.lstrip("~"), saying.new.lstrip("~"))


def _fits(sentence: Sentence, start: int, end: int, saying: Saying) -> bool:
    tokens = sentence.tokens
    if saying.object and not _is(object_of(sentence, end), saying.object):
        return False
    if saying.follows:
        after = tokens[end] if end < len(tokens) else None
        if (after.lower if after else "") not in saying.follows and (
            after is None or after.tag not in saying.follows
        ):
            return False
    if saying.needs and saying.needs.isdisjoint(sentence.lemmas):
        return False
    if start and tokens[start - 1].lower in saying.unless:
        return False
    if saying.verb and _verb_before(sentence, start) not in saying.verb:
        return False
    before = tokens[start - 1] if start else None
    if saying.after and (
        before is None
        or saying.after.isdisjoint((before.pos, before.lower, sentence.lemma(start - 1)))
    ):
        return False
    return not saying.subject or _is_subject(sentence, start, saying.subject)


def _verb_before(sentence: Sentence, place: int) -> str:
    verbs = (i for i in range(place - 1, -1, -1) if sentence.tokens[i].pos == "VERB")
    return sentence.lemma(next(verbs, place))


def _is(noun: str, names: frozenset[str]) -> bool:
    return noun not in _NOTHING and (names is _ANY or not names.isdisjoint(kinds(noun)))


def _is_subject(sentence: Sentence, place: int, names: frozenset[str]) -> bool:
    """Whether such a noun stands before, with "is" between or not."""
    tokens = sentence.tokens
    before = place - 1
    while before > 0 and tokens[before].pos in ("AUX", "ADV") and tokens[before].lower != "being":
        before -= 1
    return before >= 0 and tokens[before].tag in NOUNS and _is(sentence.lemma(before), names)
