"""WordNet, if it is installed, and the vocabulary of the rules: the lexicon with WordNet behind it.

WordNet is the text files `index.*` and `data.*` of its `dict` folder: $WNSEARCHDIR, else
$WNHOME/dict, else /usr/share/wordnet (Debian's wordnet-base). They are read as wndb(5WN) describes
them. NLTK's reader needs a file that Debian leaves out, refuses folders other than its own, and
takes seconds to open. Words are lemmas in lower case, with spaces.
"""

from __future__ import annotations

import functools
import mmap
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from counterpoint._util.errors import DataError
from counterpoint.generation.language import lexicon

_LIKELIEST: Final = 12
_KNOWN: Final = 65_536  # words whose alternatives are remembered
_USUAL: Final = Path("/usr/share/wordnet")
_FILES: Final = {"NOUN": "noun", "VERB": "verb", "ADJ": "adj", "ADV": "adv"}
_LETTERS: Final = {"n": "NOUN", "v": "VERB", "a": "ADJ", "s": "ADJ", "r": "ADV"}
_UP: Final = ("@", "@i")
_DOWN: Final = ("~", "~i")
_SENSES: Final = 2  # the most frequent senses of a word, whose siblings are used
_STEPS: Final = 5  # levels between two words that may name the same thing


class Pointer(NamedTuple):
    """A link to a synset; `source` and `target` are word numbers from 1, or 0 for all words."""

    symbol: str
    offset: int
    pos: str
    source: int
    target: int


class Synset(NamedTuple):
    """Words that share a meaning."""

    pos: str
    words: tuple[str, ...]
    pointers: tuple[Pointer, ...]

    def linked(self, *symbols: str) -> Iterator[tuple[str, int]]:
        """The targets of links of these kinds."""
        return ((p.pos, p.offset) for p in self.pointers if p.symbol in symbols)


def find() -> WordNet | None:
    """WordNet, if it is installed. A named folder without it is an error."""
    for name, below in (("WNSEARCHDIR", ""), ("WNHOME", "dict")):
        if os.environ.get(name):
            folder = Path(os.environ[name]) / below
            if not _complete(folder):
                raise DataError(
                    "E-WORDNET-MISSING",
                    f"{folder}: no WordNet (index.noun, data.noun, ...) is there; "
                    f"correct {name} or unset it.",
                )
            return _open(folder)
    return _open(_USUAL) if _complete(_USUAL) else None


def _complete(folder: Path) -> bool:
    kinds = ("index", "data")
    return all((folder / f"{kind}.{name}").is_file() for kind in kinds for name in _FILES.values())


@functools.lru_cache(maxsize=4)
def _open(folder: Path) -> WordNet:
    return WordNet(folder)


class WordNet:
    """Lookups by lemma and part of speech ("NOUN", "VERB", "ADJ", "ADV"), in order of frequency."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._maps: dict[str, mmap.mmap] = {}
        # Caches belong to the instance, so that they end with it.
        self._index = functools.cache(self._lines)
        self.senses = functools.lru_cache(maxsize=1 << 15)(self._senses)
        self.synset = functools.lru_cache(maxsize=1 << 16)(self._synset)
        self.may_be_same = functools.lru_cache(maxsize=1 << 16)(self._may_be_same)

    @functools.cached_property
    def version(self) -> str:
        """The version in the files: "WordNet 3.0"."""
        head = self._bytes("data.noun")[:4096].decode("ascii", "replace")
        named = re.search(r"WordNet \d+(?:\.\d+)*", head)
        return named[0] if named else "WordNet"

    def synonyms(self, lemma: str, pos: str) -> tuple[str, ...]:
        """Every other word of every synset that it is in."""
        words = (w for key in self.senses(lemma, pos) for w in self.synset(*key).words)
        return _unique(words, without={lemma})

    def antonyms(self, lemma: str, pos: str) -> tuple[str, ...]:
        """The antonyms of this word."""
        found: list[str] = []
        for key in self.senses(lemma, pos):
            synset = self.synset(*key)
            number = synset.words.index(lemma) + 1 if lemma in synset.words else 0
            for pointer in synset.pointers:
                if pointer.symbol == "!" and pointer.source in (0, number):
                    words = self.synset(pointer.pos, pointer.offset).words
                    found += words[pointer.target - 1 : pointer.target] if pointer.target else words
        return _unique(found, without={lemma})

    def siblings(self, lemma: str, pos: str) -> tuple[str, ...]:
        """Words under the same hypernyms as its most frequent senses; for nouns and verbs.

        No sibling shares a synset with it, or is its hypernym or hyponym.
        """
        found: list[str] = []
        for key in self.senses(lemma, pos)[:_SENSES]:
            for parent in self.synset(*key).linked(*_UP):
                for child in self.synset(*parent).linked(*_DOWN):
                    found += self.synset(*child).words
        words = _unique(found, without={lemma})
        return tuple(word for word in words if not self.may_be_same(lemma, word, pos))

    def _may_be_same(self, a: str, b: str, pos: str | None = None) -> bool:
        """Whether they share a synset, or one is above the other; adjectives: are similar."""
        if a == b:
            return True
        for each in (pos,) if pos else _FILES:
            mine, other = set(self.senses(a, each)), set(self.senses(b, each))
            if mine & other or mine & self._over(other) or other & self._over(mine):
                return True
        return False

    def _over(self, keys: set[tuple[str, int]]) -> set[tuple[str, int]]:
        """Synsets above these, within a few steps, and those that are similar to them."""
        found = {near for key in keys for near in self.synset(*key).linked("&")}
        edge = keys
        for _ in range(_STEPS):
            edge = {up for key in edge for up in self.synset(*key).linked(*_UP)} - found
            found |= edge
        return found

    def _senses(self, lemma: str, pos: str) -> tuple[tuple[str, int], ...]:
        """The offsets of its synsets, the most frequent first."""
        if pos not in _FILES or not lemma:
            return ()
        parts = self._index(pos).get(lemma.replace(" ", "_").encode(), b"").split()
        if not parts:
            return ()
        try:
            count = int(parts[2])
            return tuple((pos, int(offset)) for offset in parts[-count:])
        except (IndexError, ValueError):
            raise self._broken(f"index.{_FILES[pos]}") from None

    def _synset(self, pos: str, offset: int) -> Synset:
        name = f"data.{_FILES[pos]}"
        text = self._bytes(name)
        end = text.find(b"\n", offset)
        record = text[offset : end if end >= 0 else len(text)].decode("utf-8", "replace")
        try:
            return _parse(record, offset)
        except (IndexError, ValueError, KeyError, StopIteration):
            raise self._broken(name) from None

    def _lines(self, pos: str) -> dict[bytes, bytes]:
        """The lines of an index by their words; those of the licence start with a space."""
        lines = self._bytes(f"index.{_FILES[pos]}")[:].splitlines()
        return {line.partition(b" ")[0]: line for line in lines if line[:1] != b" "}

    def _bytes(self, name: str) -> mmap.mmap:
        if name not in self._maps:
            try:
                with (self.folder / name).open("rb") as file:
                    self._maps[name] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except (OSError, ValueError) as error:  # ValueError: the file is empty
                raise DataError(
                    "E-FILE-UNREADABLE", f"{self.folder / name}: cannot be read: {error}."
                ) from None
        return self._maps[name]

    def _broken(self, name: str) -> DataError:
        return DataError(
            "E-FILE-MALFORMED",
            f"{self.folder / name}: not a file of WordNet as its manual describes it; install it "
            "again, or point WNSEARCHDIR elsewhere.",
        )


def _parse(record: str, offset: int) -> Synset:
    """A line of a data file: offset, file number, kind, words, pointers, ... | gloss."""
    parts = iter(record.partition("|")[0].split())
    if int(next(parts)) != offset:
        raise ValueError("another record")
    next(parts)  # the number of the lexicographer's file
    pos = _LETTERS[next(parts)]
    words = [(next(parts), next(parts))[0] for _ in range(int(next(parts), 16))]
    pointers = [
        Pointer(next(parts), int(next(parts)), _LETTERS[next(parts)], *_ends(next(parts)))
        for _ in range(int(next(parts)))
    ]
    return Synset(pos, tuple(_plain(word) for word in words), tuple(pointers))


def _ends(field: str) -> tuple[int, int]:
    """Which word points to which: two hexadecimal numbers of two digits."""
    return int(field[:2], 16), int(field[2:], 16)


def _plain(word: str) -> str:
    """Without the marker of "galore(ip)" for the position of an adjective; with spaces."""
    return re.sub(r"\((?:a|p|ip)\)$", "", word).replace("_", " ").lower()


def _unique(words: Iterable[str], without: set[str]) -> tuple[str, ...]:
    return tuple(word for word in dict.fromkeys(words) if word not in without)


@dataclass(frozen=True)
class Vocabulary:
    """The words that rules use. `doubtful`: also narrower words, and others that may be false.

    `true` are other true captions of the image: what they say must not be added to a negative.
    """

    wordnet: WordNet | None = None
    doubtful: bool = False
    true: tuple[str, ...] = field(default=(), compare=False)  # words do not depend on it

    def others(self, word: str, pos: str, noun: str = "") -> tuple[str, ...]:
        """Words that make another statement about this noun; none may mean the same.

        The most similar ones. WordNet is used for words that the lexicon does not have.
        """
        return _others(self, word, pos, noun)

    def synonyms(self, word: str, pos: str, noun: str) -> tuple[lexicon.Synonym, ...]:
        """Words that say the same of this noun."""
        found = lexicon.synonyms(word, pos, noun)
        return tuple(synonym for synonym in found if self.doubtful or not synonym.doubt)

    @property
    def version(self) -> str:
        parts = [f"lexicon={lexicon.version()}"]
        parts += [self.wordnet.version.replace(" ", "=")] if self.wordnet else []
        return " ".join(parts)


@functools.lru_cache(_KNOWN)
def _others(vocabulary: Vocabulary, word: str, pos: str, noun: str) -> tuple[str, ...]:
    found = list(lexicon.rivals(word, pos, noun))
    wordnet = vocabulary.wordnet
    if not found and wordnet is not None and not lexicon.meanings(word, pos):
        asked = (*wordnet.antonyms(word, pos), *wordnet.siblings(word, pos))
        found = [
            other
            for other in asked
            if not wordnet.may_be_same(word, other, pos) and not lexicon.may_be_same(word, other)
        ]
    return tuple(found[:_LIKELIEST])
