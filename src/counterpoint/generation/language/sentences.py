"""Captions as sentences: tokens with tags, the phrases in them, and grammatical edits.

Tokens are plain tuples, so that rules are fast and do not need spaCy. Phrases are found by tags:
many captions are noun phrases, on which a sentence parser fails, and parsing would take as long as
everything else. An edit (`rewrite`) keeps spaces, capitals, articles and word forms correct.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import tee
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from counterpoint._util.english import article, english_tagger
from counterpoint.generation.language import lexicon
from counterpoint.generation.language.lists import WORDS, keys_of
from counterpoint.generation.language.words import inflected, is_english, lemma

if TYPE_CHECKING:
    from spacy.tokens import Doc

MOST_WORDS: Final = 80  # CLIP reads 77 tokens: a later edit might be cut off
_WORD: Final = re.compile(r"[^\W\d_]+", re.UNICODE)
_LATIN: Final = re.compile(r"[a-z]+")
_CAPITALS: Final = re.compile(r"\b[A-Z]{2,}\b")
_BATCH: Final = 256
_SHARE: Final = 0.6  # minimum share of English words: captions have names and typos

NOUNS: Final = frozenset({"NN", "NNS"})
ADJECTIVES: Final = frozenset({"JJ", "JJR", "JJS"})
FINITE: Final = frozenset({"VBZ", "VBP", "VBD"})
DETERMINERS: Final = frozenset({"DT", "PRP$", "CD", "PDT"})
_MODIFIERS: Final = frozenset({"JJ", "JJR", "JJS", "VBN", "VBG", "NN", "NNS", "NNP", "HYPH", "RB"})
_BEFORE: Final = _MODIFIERS - {"VBG", "RB", "NNS"}
_STARTS: Final = DETERMINERS | ADJECTIVES | NOUNS | {"NNP", "PRP", "VBN"}
_NEXT: Final = ADJECTIVES | {"VBG", "VBN", "RB"}  # after a noun, they are not part of its phrase
# The part of speech of a Penn tag. spaCy's own table of patterns takes as long as tagging; this is
# enough for captions.
_POS: Final = keys_of("parts_of_speech")
_HELPERS: Final = {
    **dict.fromkeys(("has", "have", "had"), ("VBN",)),
    **dict.fromkeys(("do", "does", "did"), ("VB",)),
}

# Kinds of words that CLIC exchanges (Peleg et al. 2025); it leaves out articles, joints and signs.
_EXCHANGED: Final = ("NOUN", "ADJ", "VERB", "ADP", "ADV", "NUM", "PRON", "PROPN")

Range = tuple[int, int]
Piece = tuple[str, str, bool]  # a word, the space after it, and whether it is new


_Item = TypeVar("_Item")


class Token(NamedTuple):
    """A word or mark, its Penn tag and its part of speech."""

    text: str
    lower: str
    tag: str
    pos: str
    start: int
    end: int

    def form_of(self, words: str, tag: str | None = None) -> str:
        """A dictionary form (of several words: the first of a verb, else the last) in this form.

        Empty if English has no such form. In capitals if the token is.
        """
        tag = tag or self.tag
        if tag.startswith("V"):
            head, blank, rest = words.partition(" ")
            form = inflected(head, tag)
            text = form and form + blank + rest
        else:
            rest, blank, head = words.rpartition(" ")
            form = inflected(head, tag)
            text = form and rest + blank + form
        loud = len(self.text) > 1 and self.text.isupper() and self.text not in WORDS.abbreviations
        return text.upper() if loud else text


NO_TOKEN: Final = Token("", "", "", "", 0, 0)


class Put(NamedTuple):
    """`text` replaces the tokens from `start` to `end`; with an empty range it is inserted."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, eq=False)
class Sentence:
    """A tagged caption. It is compared by identity, so that results about it are cheap to cache.

    Places are numbers of tokens.
    """

    text: str
    tokens: tuple[Token, ...]
    lemmas: list[str]

    @property
    def end(self) -> int:
        """The number of tokens without a final mark."""
        return len(self.tokens) - (self.tokens[-1].tag == ".")

    def at(self, place: int) -> Token:
        """A token; an empty one before the first and behind the last."""
        return self.tokens[place] if 0 <= place < len(self.tokens) else NO_TOKEN

    def word(self, place: int) -> str:
        """A token in lower case; empty before the first and behind the last."""
        return self.at(place).lower

    def has(self, words: Collection[str], start: int = 0, end: int | None = None) -> bool:
        """Whether one of the tokens is one of these words."""
        return any(token.lower in words for token in self.tokens[start:end])

    def words(self, start: int, end: int) -> str:
        """A range of tokens in lower case, with single blanks."""
        return " ".join([token.lower for token in self.tokens[start:end]])

    def part(self, start: int, end: int) -> str:
        """The text of a range of tokens."""
        return self.text[self.tokens[start].start : self.tokens[end - 1].end]

    # --- phrases

    def noun_phrase_after(self, start: int) -> Range | None:
        """The noun phrase that begins at a token: "a black bow tie", "two dogs", "rice"."""
        place, last = start, None
        while self.at(place).tag in DETERMINERS:
            place += 1
        while (tag := self.at(place).tag) in _MODIFIERS:
            if tag in NOUNS:
                last = place
            elif last is not None and tag in _NEXT:
                break  # "a man | holding"
            place += 1
        return None if last is None or self._disagrees(start, last) else (start, last + 1)

    def _disagrees(self, start: int, last: int) -> bool:
        """ "a hydrant waits": the tagger takes the verb for a noun."""
        return self.tokens[start].lower in ("a", "an") and self.tokens[last].tag == "NNS"

    def noun_phrase_before(self, end: int) -> Range | None:
        """The noun phrase that ends before a token."""
        if self.at(end - 1).tag not in NOUNS:
            return None
        place = end - 1
        while self.at(place - 1).tag in _BEFORE:
            place -= 1  # not over a plural: "feeding giraffes grass"
        while self.at(place - 1).tag in DETERMINERS:
            place -= 1
        # "sitting" in "a sitting cat" is inside, in "a man holding cats" it is not
        if self.at(place - 1).tag == "VBG" and self.word(place - 2) in WORDS.articles:
            place -= 2
        while self.tokens[place].tag == "HYPH":
            place += 1
        return None if self._disagrees(place, end - 1) else (place, end)

    def noun_phrases(self) -> Iterator[Range]:
        """All of them, from left to right."""
        place = 0
        while place < len(self.tokens):
            starts = self.tokens[place].tag not in ("VBG", "VBN", "RB", "HYPH")
            phrase = self.noun_phrase_after(place) if starts else None
            if phrase is not None:
                yield phrase
            place = place + 1 if phrase is None else phrase[1]

    def things(self) -> list[int]:
        """Nouns that head a phrase and are a thing: not "front", not the "bow" of "bow tie"."""
        return [
            i
            for i, token in enumerate(self.tokens)
            if token.tag in NOUNS
            and self.at(i + 1).tag not in (*NOUNS, "HYPH", "POS")
            and self.at(i - 1).tag != "HYPH"
            and self.lemmas[i] not in WORDS.abstract
        ]

    def whole(self, noun: int) -> Range:
        """A noun with those that specify it: "computer room"."""
        start = noun
        while self.at(start - 1).tag in (*NOUNS, "NNP"):
            start -= 1
        return start, noun + 1

    def name_of(self, noun: int) -> str:
        """A noun as the lexicon has it: a compound ("hot dog") is one thing, in the singular."""
        start, _ = self.whole(noun)
        if start == noun and noun:
            name = f"{self.tokens[noun - 1].lower} {self.lemmas[noun]}"
            if lexicon.meanings(name, "NOUN"):
                return name
        before = "".join(f"{token.lower} " for token in self.tokens[start:noun])
        name = before + self.lemmas[noun]
        return name if not before or lexicon.meanings(name, "NOUN") else self.lemmas[noun]

    def attributes(self) -> list[int]:
        """Adjectives before a noun, or said of one ("is red"); not "other", "many" and the like."""
        return [
            i
            for i, token in enumerate(self.tokens)
            if token.tag in ADJECTIVES
            and token.lower not in WORDS.vague_adjectives
            and not self.in_hyphens(i)
        ]

    def in_hyphens(self, place: int) -> bool:
        """Whether a token is a part of a word with hyphens."""
        return "HYPH" in (self.at(place - 1).tag, self.at(place + 1).tag)

    def noun_described(self, adjective: int) -> int:
        """The noun whose adjective this is: the next with only modifiers between, else -1."""
        for place in range(adjective + 1, len(self.tokens)):
            token = self.tokens[place]
            if token.tag in NOUNS:
                if self.at(place + 1).tag not in NOUNS:
                    return place
            elif token.tag not in _MODIFIERS and token.lower not in ("and", ","):
                break
        return -1

    def said_of(self, adjective: int) -> str:
        """The noun that an adjective is said of, also after "is", as a lemma; else empty."""
        noun = self.noun_described(adjective)
        if noun < 0:
            copula = adjective - 1
            while copula > 0 and self.tokens[copula].tag == "RB":  # "is very red"
                copula -= 1
            if self.at(copula).pos == "AUX":
                before = range(adjective - 1, -1, -1)
                noun = next((i for i in before if self.tokens[i].tag in NOUNS), -1)
        return self.lemmas[noun] if noun >= 0 else ""

    def object_of(self, place: int) -> str:
        """The noun of the phrase at a token: the object of what stands before; else empty."""
        phrase = self.noun_phrase_after(place)
        return self.lemmas[phrase[1] - 1] if phrase else ""

    def starts_phrase(self, place: int) -> bool:
        """Whether a noun phrase may begin at a token: else a preposition before has no object."""
        return self.at(place).tag in _STARTS

    def is_worn(self, noun: int) -> bool:
        """Whether a noun is something that people wear."""
        return any("clothes" in m.kinds for m in lexicon.meanings(self.lemmas[noun], "NOUN"))

    def is_place_for(self, place: int) -> bool:
        """Whether the noun phrase at a token is a place for things.

        Not in "in uniform", "on display", "in the background".
        """
        phrase = self.noun_phrase_after(place)
        if phrase is None:
            return self.at(place).tag == "PRP"
        head = phrase[1] - 1
        return self.lemmas[head] not in WORDS.no_places and not self.is_worn(head)

    # --- edits

    @cached_property
    def pieces(self) -> list[Piece]:
        """The words as they are written inside a sentence."""
        ends = [*(token.start for token in self.tokens[1:]), None]
        return [
            (self.plain(i) if i == 0 else token.text, self.text[token.end : end], False)
            for i, (token, end) in enumerate(zip(self.tokens, ends, strict=True))
        ]

    def plain(self, place: int) -> str:
        """A token as it is written inside a sentence: the first without its capital."""
        text = self.tokens[place].text
        if place or text == "I" or text[1:] != text[1:].lower():
            return text
        lower = text[:1].lower() + text[1:]
        return lower if is_english(lower) else text  # a name keeps its capital

    def span_text(self, start: int, end: int) -> str:
        """A range of tokens as it is written inside a sentence."""
        return self.plain(start) + self.text[self.tokens[start].end : self.tokens[end - 1].end]

    def swap(self, first: Range, second: Range) -> str:
        """The caption with two ranges exchanged; `first` ends before `second` starts."""
        puts = Put(*first, self.span_text(*second)), Put(*second, self.span_text(*first))
        return self.rewrite(puts)

    def rewrite(self, puts: Sequence[Put]) -> str:
        """The caption with other words in some places.

        The first letter is a capital if the caption's was. `a` and `an` fit the next word.
        """
        pieces: list[Piece] = []
        place = 0
        for start, end, text in sorted(puts, key=lambda put: (put.start, put.end)):
            pieces += self.pieces[place:start]
            pieces.append((text, self.pieces[end - 1][1] if start < end else " ", True))
            place = end
        pieces += self.pieces[place:]
        _set_articles(pieces)
        text = "".join([word + blank for word, blank, _ in pieces])
        text = self.text[: self.tokens[0].start] + text
        if self.text.isupper():
            return text.upper()
        if not self.tokens[0].text[:1].isupper():
            return text
        first = len(text) - len(text.lstrip())
        return text[:first] + text[first : first + 1].upper() + text[first + 1 :]


def _set_articles(pieces: list[Piece]) -> None:
    """Mistakes of the caption itself are kept."""
    for i in range(len(pieces) - 1):
        following = pieces[i + 1]
        piece, blank, new = pieces[i]
        if not new and not following[2]:
            continue
        before, _, word = piece.rpartition(" ")
        if word.lower() in ("a", "an"):
            if following[2] and following[0].lower() in WORDS.mass_nouns and not before:
                pieces[i] = ("", "", new)
                continue
            fitting = article(following[0])
            fitting = fitting.upper() if word.isupper() and len(word) > 1 else fitting
            fitting = fitting.capitalize() if word[0].isupper() else fitting
            pieces[i] = (f"{before} {fitting}".strip(), blank, new)


class Phrases:
    """Phrases of one or more words that are looked for in captions, by their first words."""

    def __init__(self, phrases: Iterable[str]) -> None:
        self._by_first: dict[str, list[tuple[str, ...]]] = {}
        for phrase in sorted(phrases, key=lambda phrase: -len(phrase.split())):
            words = tuple(phrase.split())
            self._by_first.setdefault(words[0], []).append(words)

    def at(self, sentence: Sentence, start: int) -> Range | None:
        """The longest phrase that begins at a token."""
        tokens = sentence.tokens
        for words in self._by_first.get(tokens[start].lower, ()):
            end = start + len(words)
            if tuple(token.lower for token in tokens[start:end]) == words:
                return start, end
        return None


@cache
def prepositions() -> Phrases:
    """Those of the lexicon."""
    return Phrases(name for name in lexicon.relations() if lexicon.meanings(name, "ADP"))


# --- tagging --------------------------------------------------------------------------------------


def tagged(captions: Iterable[str]) -> Iterator[Sentence]:
    """Captions in order, each tagged once for all rules."""
    texts, originals = tee(captions)
    docs = english_tagger("attribute_ruler").pipe(map(_lowered, texts), batch_size=_BATCH)
    for doc, caption in zip(docs, originals, strict=True):
        tokens = tuple(_with_helpers(_tokens(doc, caption)))
        yield Sentence(caption, tokens, [lemma(token.lower, token.pos) for token in tokens])


def _lowered(caption: str) -> str:
    """Without words in capitals ("dog ON table"), which the tagger takes for names."""
    lowered = _CAPITALS.sub(lambda match: match[0].lower(), caption)
    return lowered if len(lowered) == len(caption) else caption  # positions must not change


def _tokens(doc: Doc, caption: str) -> list[Token]:
    tokens: list[Token] = []
    for token in doc:
        if not token.is_space:  # several spaces are a token
            start, end = token.idx, token.idx + len(token)
            lower, tag = token.lower_, token.tag_
            pos = "AUX" if lower in WORDS.be else _POS.get(tag, "X")
            tokens.append(Token(caption[start:end], lower, tag, pos, start, end))
    return tokens


def _with_helpers(tokens: list[Token]) -> Iterator[Token]:
    """ "has" and "does" help a verb if one in the right form follows."""
    for place, token in enumerate(tokens):
        forms = _HELPERS.get(token.lower)
        after = next((t for t in tokens[place + 1 :] if t.pos != "ADV"), None) if forms else None
        yield token._replace(pos="AUX") if forms and after and after.tag in forms else token


def unreadable(caption: str) -> str:
    """Why a caption cannot be used; empty if it can."""
    if not caption.strip():
        return "empty"
    words = _WORD.findall(caption.lower())
    if not words:
        return "no words"
    if len(words) > MOST_WORDS:
        return f"more than {MOST_WORDS} words"
    known = sum(_LATIN.fullmatch(word) is not None and _is_known(word) for word in words)
    return "" if known >= _SHARE * len(words) else "not English"


def _is_known(word: str) -> bool:
    """In the dictionary, or in the lexicon, which has words of captions such as "frisbee"."""
    return is_english(word) or bool(lexicon.meanings(word) or lexicon.meanings(word[:-1]))


# --- parts of captions ----------------------------------------------------------------------------


def phrases_of(captions: Iterable[str]) -> Iterator[list[str]]:
    """The noun phrases of each caption, from left to right, each once; none is the caption."""
    for sentence in tagged(captions):
        found = [sentence.part(*place) for place in sentence.noun_phrases()]
        yield [phrase for phrase in dict.fromkeys(found) if phrase != sentence.text]


def exchanged(
    pairs: Sequence[tuple[str, str]], draws: Sequence[Sequence[float]]
) -> list[tuple[str, str] | None]:
    """Pairs of captions with a word of one exchanged for a word of the other, of the same kind.

    `draws`: three numbers from [0, 1) for each pair choose the kind and the words. A word that both
    captions have is not exchanged; None where nothing can be.
    """
    sentences = tagged(caption for pair in pairs for caption in pair)
    both = zip(sentences, sentences, strict=True)
    return [_exchanged(*two, drawn) for two, drawn in zip(both, draws, strict=True)]


def _exchanged(one: Sentence, two: Sentence, draws: Sequence[float]) -> tuple[str, str] | None:
    kinds = [(_own_words(one, two, kind), _own_words(two, one, kind)) for kind in _EXCHANGED]
    kinds = [kind for kind in kinds if all(kind)]
    if not kinds:
        return None
    mine, theirs = _drawn(kinds, draws[0])
    first, second = _drawn(mine, draws[1]), _drawn(theirs, draws[2])
    found = (
        one.rewrite([Put(first, first + 1, two.plain(second))]),
        two.rewrite([Put(second, second + 1, one.plain(first))]),
    )
    # Captions that differ in one word have become each other, and say what they said.
    return None if found == (two.text, one.text) else found


def _own_words(sentence: Sentence, other: Sentence, kind: str) -> list[int]:
    """Places of words of a kind that the other sentence has not."""
    known = {token.lower for token in other.tokens}
    return [
        place
        for place, token in enumerate(sentence.tokens)
        if token.pos == kind and token.lower not in known
    ]


def _drawn(among: Sequence[_Item], draw: float) -> _Item:
    return among[min(int(draw * len(among)), len(among) - 1)]
