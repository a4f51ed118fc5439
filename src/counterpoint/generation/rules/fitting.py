"""Which words fit a place in a caption: by what things are, by grammar, and by what captions say.

A replacement that is false but cannot be photographed ("a beige sky", "a zebra above a giraffe")
gives itself away. So each table says what is possible; what no table knows is not offered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from typing import Final

from counterpoint.generation.language import lexicon, plausibility
from counterpoint.generation.language.sentences import MASS_NOUNS, word_set

_KNOWN: Final = 1 << 15
_LEAST: Final = 4  # a word that captions have less often is rare, and gives itself away
_CHANCES: Final = 3  # two words that should have met so often, and never did, do not fit

Table = Mapping[str, frozenset[str]]


def table(rows: Mapping[str, str]) -> Table:
    """By each noun or kind of the keys, the words of the value; the first row that fits counts."""
    found: dict[str, frozenset[str]] = {}
    for names, words in rows.items():
        split = frozenset(part.strip() for part in words.split(",") if part.strip())
        for name in names.split(","):
            found.setdefault(name.strip(), split)
    return found


@lru_cache(_KNOWN)
def is_noun(name: str) -> bool:
    """Whether the lexicon has it as a noun."""
    return bool(lexicon.meanings(name, "NOUN"))


@lru_cache(_KNOWN)
def fields_of(word: str, pos: str) -> frozenset[str]:
    return frozenset(meaning.field for meaning in lexicon.meanings(word, pos))


@lru_cache(_KNOWN)
def kinds_of(noun: str) -> tuple[str, ...]:
    """The noun, its head word, and every kind it belongs to, the closest first."""
    head = noun.rpartition(" ")[2]
    own = fields_of(noun, "NOUN")  # a hot dog is no dog
    named = own and own.isdisjoint(fields_of(head, "NOUN"))
    found = dict.fromkeys((noun,) if named else (noun, head))
    edge = [noun if lexicon.meanings(noun, "NOUN") else noun.rpartition(" ")[2]]
    while edge:
        meanings = lexicon.meanings(edge.pop(0), "NOUN")
        sure = [meaning for meaning in meanings if meaning.contrast != "none"] or meanings
        for name in (name for meaning in sure[:1] for name in (meaning.head, *meaning.kinds)):
            if name not in found:
                found[name] = None
                edge.append(name)
    return tuple(found)


def row_of(table: Table, noun: str) -> frozenset[str] | None:
    """The row of the noun, or of its closest kind that has one."""
    return next((table[kind] for kind in kinds_of(noun) if kind in table), None)


@lru_cache(_KNOWN)
def is_any(noun: str, kinds: frozenset[str]) -> bool:
    return not kinds.isdisjoint(kinds_of(noun))


ANIMATE: Final = frozenset({"person", "people", "animal"})
PEOPLE: Final = frozenset({"person", "people"})


# --- what captions say ---------------------------------------------------------------------------


@lru_cache(_KNOWN)
def is_usual(words: str) -> bool:
    """Whether captions have each of these words."""
    return all(plausibility.shipped().count(word) >= _LEAST for word in words.split())


@lru_cache(_KNOWN)
def never_meet(first: str, second: str) -> bool:
    """Whether two frequent words never follow each other, though chance alone would bring it."""
    model = plausibility.shipped()
    first, second = first.rpartition(" ")[2], second.partition(" ")[0]
    if model.count(first, second):
        return False
    phrases = 2 * max(model.count("a"), 1)  # about as many as there are nouns
    return model.count(first) * model.count(second) >= _CHANCES * phrases


@lru_cache(_KNOWN)
def is_in_captions(adjective: str, noun: str) -> bool:
    """Whether captions have the adjective before the noun or its plural."""
    count = plausibility.shipped().count
    return any(count(adjective, form) for form in (noun, f"{noun}s", f"{noun}es"))


@lru_cache(_KNOWN)
def follows(before: str, noun: str) -> bool:
    """Whether captions have this noun behind these words: "in the kitchen", "cup of coffee"."""
    word, head = before.split()[-1], noun.split()[0]
    count = plausibility.shipped().count
    if word == "of":
        return count(*before.split(), head) > 0
    return any(count(word, article, head) for article in ("a", "the")) or count(word, head) > 0


# --- attributes ----------------------------------------------------------------------------------

_ALL_COLOURS: Final = "red, blue, green, yellow, black, white, brown, orange, pink, purple, grey"
COLOURS: Final = table(
    {
        "sky": "blue, grey, orange, pink",
        "grass, field, lawn, meadow, pasture, hill": "green, brown",
        "ocean, lake, river, pond, water": "blue, green, brown",
        "hair, fur, beard, mane, mustache": "black, brown, blond, grey, white",
        "cat": "black, white, brown, grey, orange",
        "bird": "black, white, brown, grey, blue, green, yellow",
        "giraffe, zebra, lion, tiger, leopard, panda": "",
        "elephant": "grey, brown",
        "animal": "black, white, brown, grey",
        "flower": "red, yellow, pink, white, purple, orange, blue",
        "apple": "red, green, yellow",
        "wine": "red, white",
        "pepper": "red, green, yellow",
        "tree, bush, leaf, plant": "green, brown, yellow",
        "building": "white, red, brown, grey, yellow, blue",
        "furniture, door, cabinet": "brown, white, black, red, blue, green, grey",
        "room": "white, blue, yellow, green, pink, red",
        "toilet, sink, bathtub, refrigerator, stove": "white, black, blue, pink, green, yellow",
        "jeans": "blue, black, white, grey",
        "food, drink, people, person, picture, body part, place, sand, snow, cloud, rock, bone": "",
        "mountain, smoke, fire, light, rain, dirt, wave, sun, moon, cheese, eye, skin, couple": "",
        "photo, image, group": "",
        "thing": _ALL_COLOURS,
    }
)
MATERIALS: Final = table(
    {
        "bench, table, chair, furniture, shelf, ladder": "wooden, metal, plastic, stone",
        "fence, gate, bridge, pole, post": "wooden, metal, stone, concrete",
        "wall": "brick, wooden, stone, concrete, tiled",
        "floor": "wooden, tiled, concrete, marble",
        "stand, stall": "wooden, metal",
        "building": "brick, wooden, stone, concrete, glass",
        "counter": "wooden, granite, marble, tiled",
        "bowl, cup, plate, platter, tray, spoon, fork": "wooden, plastic, metal, glass, paper",
        "vase, jar, pitcher": "glass, ceramic, metal, plastic",
        "container": "wooden, plastic, metal, glass, cardboard",
        "bag": "paper, plastic, leather, cloth",
        "jacket, coat, couch, belt, boot, glove": "leather, denim, cloth",
        "clothes": "cotton, denim, leather, silk, woollen",
        "boat, toy, spatula, cutting board, box, crate": "wooden, plastic, metal",
        "door, door frame, window, deck, structure, stairs": "wooden, metal, glass",
        "road, path, street, trail": "dirt, paved, concrete",
        "lot": "dirt, paved",
        "sculpture, statue": "wooden, metal, stone, glass, bronze",
    }
)
# A tile may be of stone, and a wall of several of them.
_MINERAL: Final = word_set("stone tile tiled ceramic marble granite concrete brick paved")
_SKIES: Final = "sunny, rainy, cloudy, foggy, snowy, windy"
OTHERS: Final = table(
    {
        "day, afternoon, morning, evening": _SKIES,
        "sky": "cloudy, clear, stormy",
        "street, road, city": "rainy, snowy, sunny",
        "slope, hill, mountain, field, area, hillside, ground, path, trail": "snowy, grassy, rocky",
        "beach, shore": "sandy, rocky, snowy",
        "clothes, accessory, bedding, umbrella, curtain, tablecloth, couch, chair": (
            "striped, plaid, floral, checkered, spotted, plain"
        ),
        "table, mirror, plate, clock, sign, window, rug, tray, cake, pizza, pan, box, container": (
            "round, square, rectangular, oval"
        ),
    }
)
_CATEGORIES: Final[Mapping[str, Table]] = {
    "colour": COLOURS,
    "material": MATERIALS,
    **dict.fromkeys(("weather", "pattern", "shape", "ground"), OTHERS),
}
# Of a scale, only the other end is taken: "medium" and "tiny" for "large" are read as mistakes.
_OF_SIZE: Final = frozenset({"size", "build", "width", "thickness", "weight"})
_OF_ALL: Final = _OF_SIZE | {"height", "length", "depth", "age"}
_HARDLY_SEEN: Final = word_set(
    "cheap expensive weak ready alive awake intact unpainted real alone tiny single"
)


@lru_cache(_KNOWN)
def attributes_for(word: str, noun: str) -> tuple[str, ...]:
    """Attributes that make another statement about this noun, and that it can have."""
    return tuple(
        other
        for other in dict.fromkeys(_attributes_for(word, noun))
        if not lexicon.may_be_same(word, other)
        and not {word, other} <= _MINERAL
        and is_usual(other)
        and is_said_of(other, noun)
    )


def _attributes_for(word: str, noun: str) -> Iterator[str]:
    found = [meaning for meaning in lexicon.meanings(word, "ADJ") if lexicon.fits(meaning, noun)]
    sure = [meaning for meaning in found if word in meaning.words] or found
    if (
        not noun
        or noun == "light"
        or (is_any(noun, PEOPLE) and any(m.field in _OF_SIZE for m in sure))
    ):
        return  # "a large girl", "a dark light"
    for meaning in sure:
        table = _CATEGORIES.get(meaning.field)
        if table is not None:
            yield from sorted(row_of(table, noun) or _unknown(meaning.field, noun))
        if table is None or meaning.field in ("weather", "ground"):
            opposites = [o for o in lexicon.opposites(word, "ADJ") if o not in _HARDLY_SEEN]
            yield from [
                other
                for other in opposites
                if is_usual(other)
                and is_said_of(other, noun)
                and (meaning.field in _OF_ALL or is_in_captions(other, noun))
            ][:1]


def _unknown(field: str, noun: str) -> frozenset[str]:
    """What is tried with a noun that the lexicon does not have."""
    known = field != "colour" or any(lexicon.meanings(name, "NOUN") for name in kinds_of(noun))
    return frozenset() if known else COLOURS["thing"]


@lru_cache(_KNOWN)
def is_said_of(adjective: str, noun: str) -> bool:
    """Whether the lexicon and the captions allow an adjective with a noun."""
    meanings = lexicon.meanings(adjective, "ADJ")
    tables = [_CATEGORIES[m.field] for m in meanings if m.field in ("colour", "material")]
    rows = [row for table in tables if (row := row_of(table, noun)) is not None]
    if any(rows):
        return any(adjective in row for row in rows)
    if rows:  # "red tomatoes", not "blue bread"
        return is_in_captions(adjective, noun)
    if meanings and not any(lexicon.fits(meaning, noun) for meaning in meanings):
        return False
    return not never_meet(adjective, noun)


# --- relations of place --------------------------------------------------------------------------

_UNDER: Final = word_set("table desk bench bed tree umbrella bridge shelf truck car canopy sign")
_ON: Final = word_set(
    """table desk bench chair bed couch counter shelf rug blanket car truck box suitcase laptop rock
    log roof plate tray stove stool mat pillow dresser cabinet refrigerator horse elephant
    motorcycle bicycle skateboard surfboard boat bus seat cart keyboard book dock platform"""
)
_TALL: Final = word_set(
    """person animal vehicle building furniture tree fence bush sign gate door window television
    computer laptop fireplace refrigerator statue fountain fire hydrant pole"""
) | {"fire hydrant", "parking meter", "traffic light"}
_ROOMY: Final = word_set("room building car truck bus train van boat airplane tent cage") | {
    "enclosure"
}
_INSIDE: Final = _ROOMY | word_set("bathtub sink box basket bag suitcase") | {"parking lot"}
_HOLLOW: Final = word_set("car truck bus van boat tent cage bathtub sink box basket bag suitcase")
_RIDDEN: Final = word_set(
    """seat bed rug blanket rock log roof table boat bus horse elephant motorcycle bicycle
    skateboard surfboard dock platform"""
)  # on which people are
_SHELTER: Final = word_set("tree umbrella bridge canopy sign")  # under which people stand
_BESIDE: Final = word_set("water street sidewalk track court field beach runway park garden pool")
_HILLS: Final = word_set("stairs hill slope mountain ramp hillside escalator step trail path")
_SHAPES: Final = word_set("circle square triangle rectangle star heart diamond cross oval")
# Only what cannot be true at once: who is next to a dog may be in front of it, too, and a sign on
# a street is next to it.
_PLACES: Final[Mapping[str, tuple[tuple[str, frozenset[str]], ...]]] = {
    "on": (("under", _UNDER), ("next to", _ON), ("behind", _TALL & _ON | {"vehicle"})),
    "in": (("outside", _ROOMY), ("next to", _HOLLOW), ("behind", _INSIDE & _TALL)),
    "inside": (("outside", _ROOMY), ("behind", _INSIDE & _TALL), ("next to", _HOLLOW)),
    "outside": (("inside", _ROOMY),),
    "next to": (("on", _ON), ("under", _UNDER)),
    "by": (("on", _ON), ("under", _UNDER)),
    "near": (("far from", _TALL | _BESIDE),),
    "behind": (("in front of", _TALL), ("on", _ON), ("under", _UNDER)),
    "in front of": (("behind", _TALL), ("inside", _ROOMY), ("on", _ON)),
    "under": (("on", _ON), ("next to", _UNDER)),
    "above": (("below", _TALL | _ON | _SHAPES),),
    "below": (("above", _TALL | _ON | _SHAPES),),
    "to the left of": (("to the right of", _TALL | _ON | _SHAPES | {"thing"}),),
    "to the right of": (("to the left of", _TALL | _ON | _SHAPES | {"thing"}),),
    "over": (("under", _UNDER),),
    "around": (("under", _UNDER),),
    "up": (("down", _HILLS),),
    "down": (("up", _HILLS),),
    "toward": (("away from", _TALL | _BESIDE),),
    "away from": (("toward", _TALL | _BESIDE),),
    "into": (("out of", _INSIDE),),
    "out of": (("into", _INSIDE),),
}
STAYING: Final = word_set(
    """sit stand lie lay sleep rest wait pose park play kneel crouch eat graze lounge relax gather
    seat perch walk run"""
)
_HOMES: Final = frozenset({"room", "building"})
_MOVABLE: Final = ANIMATE | {"vehicle", "sign", "bench", "tree", "fire hydrant"}
_LARGE: Final = frozenset({"vehicle", "building", "tree", "furniture"})


def places_for(word: str, noun: str, subject: str, verb: str) -> Iterator[str]:
    """Prepositions that say something else of a thing ("a cat on a table") and are possible."""
    found = [m for m in lexicon.meanings(word, "ADP") if m.field == "place"]
    heads = [m.head for m in sorted(found, key=lambda meaning: word not in meaning.words)]
    for other, nouns in _PLACES.get(heads[0], ()) if heads else ():
        moves = heads[0] in ("up", "down", "toward", "away from", "into", "out of")
        if not is_any(noun, nouns) or (not moves and verb and verb not in STAYING):
            continue
        carried = other in ("on", "under", "inside", "above", "below")
        if carried and is_any(subject, _LARGE):
            continue
        if other == "on" and is_any(subject, PEOPLE) and not is_any(noun, _RIDDEN):
            continue
        if other == "under" and is_any(subject, PEOPLE) and not is_any(noun, _SHELTER):
            continue
        if is_any(noun, _HOMES) and not is_any(subject, _MOVABLE):
            continue  # "a sink next to a bathroom"
        yield other


# --- what people and animals do ------------------------------------------------------------------

_PERSON_DOES: Final = "sit, stand, lie, kneel, sleep, walk, run, jump"
_ANIMAL_DOES: Final = "stand, lie, sleep, walk, run"
DOES: Final = table(
    {"person, people": _PERSON_DOES, "livestock": f"{_ANIMAL_DOES}, graze", "bird": "stand, walk"}
    | {"dog, cat, bear": f"{_ANIMAL_DOES}, sit", "animal": _ANIMAL_DOES}
)
_ON_WHICH: Final = table(
    {
        "bed, couch, bench, bedding, mattress": "sit, stand, lie, sleep",
        "rock, log": "sit, stand, lie",
        "furniture, vehicle, toilet, branch, roof, equipment": "sit, stand",
    }
)
_LAIN: Final = word_set(
    "bed couch bench bedding mattress rock log grass beach floor ground sand blanket rug"
)  # where people lie
_GROUND: Final = word_set("place grass snow sand dirt ground floor ice beach deck")
PATHS: Final = word_set("down up across through along toward towards past into over around")
DONE_TO: Final = table(
    {
        "ball, baseball": "throw, catch",
        "frisbee": "throw, catch",
        "kite": "fly, carry, fix",
        "horse, pony, elephant, camel": "ride, feed, wash, lead, photograph",
        "dog": "walk, feed, wash, chase, hug, photograph",
        "cat, kitten": "feed, wash, chase, hug, photograph",
        "animal": "feed, chase, photograph",
        "bicycle, motorcycle, scooter": "ride, push, fix, wash",
        "skateboard, surfboard, snowboard": "ride, carry, fix",
        "car, truck, bus, van, train, airplane, vehicle": "drive, wash, fix, photograph, board",
        "cake": "eat, bake, decorate, sell",
        "drink": "drink, pour, sell",
        "food": "eat, sell",
        "book, newspaper, magazine, menu, map": "read, carry, buy, sell",
        "phone, cell phone": "use, drop, fix, buy",
        "laptop, computer": "use, carry, fix, clean",
        "camera": "use, fix, carry, clean",
        "television": "watch, fix, clean, carry",
        "clothes, accessory": "wear, wash",
        "umbrella": "hold, fix, sell",
        "luggage, bag, box": "carry, push, open",
        "flower": "smell, paint, sell",
        "sign": "hold, paint",
        "guitar": "play, carry, fix",
        "picture": "paint, carry, buy",
        "person": "hug, photograph, chase, carry, feed",
        "fence, wall": "paint, climb, build",
    }
)
_OF_ANIMALS: Final = word_set("chase lick smell follow watch lead")


def verbs_for(verb: str, noun: str, subject: str) -> Iterator[str]:
    """Verbs with an object that this subject can do to this noun, and not at the same time."""
    row = row_of(DONE_TO, noun) or frozenset()
    if verb not in {*row, "carry", "use", "wear", "eat"}:
        return  # who looks at a dog may chase it, and who holds a cup may drink from it
    if is_any(subject, PEOPLE):
        yield from sorted(row)
    elif is_any(subject, ANIMATE) and is_any(noun, ANIMATE):
        yield from sorted(_OF_ANIMALS)


def doings_for(verb: str, subject: str, after: str, place: str) -> Iterator[str]:
    """Verbs without an object: postures and movements that are possible in that place."""
    row = row_of(DOES, subject) or frozenset()
    if verb not in {*row, "rest", "lay", "crouch"}:
        return
    if after in PATHS:
        row &= {"walk", "run"} if verb in ("walk", "run") else frozenset()
    elif after == "at":
        row &= {"sit", "stand"}
    elif (carried := row_of(_ON_WHICH, place)) is not None:
        row &= carried
    elif after == "on" and not is_any(place, _GROUND):
        row &= {"sit", "stand"}
    if is_any(subject, PEOPLE) and not (after in ("on", "in") and is_any(place, _LAIN)):
        row -= {"lie", "sleep", "kneel"}
    yield from sorted(row)


# --- things --------------------------------------------------------------------------------------

_SMALL: Final = word_set(
    """food dishware utensil accessory clothes footwear small toy tool drink paper instrument phone
    remote camera laptop keyboard mouse book magazine newspaper notebook card letter map menu pen
    pencil bottle jar can vase bag purse wallet backpack basket racket bat ball frisbee doll pillow
    umbrella box bowl cup plate glass toothbrush flower candle"""
)
# A boat is not replaced by a car, nor a bed by a counter.
_ALIKE: Final = {
    **dict.fromkeys(("seat", "bed", "mattress"), "seat"),
    **dict.fromkeys(("table", "desk", "counter", "dresser", "shelf", "cabinet"), "table"),
    **dict.fromkeys(("airplane", "helicopter"), "air"),
    **dict.fromkeys(("dog", "cat"), "pet"),
    "boat": "boat",
    "train": "train",
    "bird": "bird",
}
MASS: Final = MASS_NOUNS | word_set(
    """asparagus baseball basketball beer cabbage candy cattle cauliflower celery cereal chocolate
    coffee cream cricket food football fruit fur garlic golf hair hockey honey icing kale ketchup
    mustard paper pasta pepperoni polo popcorn rugby sausage shrimp soccer soda softball soup
    spaghetti sugar sushi syrup tea tennis tofu toilet_paper volleyball water wine yogurt"""
)
EITHER: Final = word_set("pizza cake chicken fish turkey steak salad pie ice_cream sauce")
PLURAL: Final = word_set(
    """glasses sunglasses goggles scissors pants jeans shorts headphones stairs pajamas tongs"""
)
# Who wears a suit wears a shirt, too.
_FIXED_FIELDS: Final = word_set(
    """gathering body portion herd kind writing trick sky picture small_thing accessory game
    part_of_plant part_of_vehicle ground_cover garment footwear"""
)

# They have no sibling that does the same, or another sense.
_ALONE: Final = word_set(
    """umbrella ball light board fan net stick swing plant wire string line model clock corner top
    adult goal slide trophy canopy tent parachute person teenager parent passenger owner letter
    note surfboard snowboard skateboard ski racket bat bed mask bride groom mother father"""
)
# New words that seldom fit: of what people do, babies do little.
_NEVER_NEW: Final = (
    _ALONE
    | word_set(
        """cup glass pitcher pool baby toddler vine subway trailer locomotive mattress home stand
        stall urinal"""
    )
    | {"train car", "ice cream"}
)


@cache
def is_thing(noun: str) -> bool:
    """Whether another thing can stand for it: not for "group", "hand", "slice", "sky"."""
    meanings = lexicon.meanings(noun, "NOUN") if noun not in _ALONE else ()
    return bool(meanings) and not any(
        meaning.field in _FIXED_FIELDS or meaning.scale == "role" for meaning in meanings
    )


def is_countable(noun: str) -> bool | None:
    """Whether it has a plural and an article: not "bread". None if it is said both ways."""
    name = noun.replace(" ", "_")
    last = noun.rpartition(" ")[2]
    if name in EITHER or last in EITHER:
        return None
    return name not in MASS and last not in MASS


@lru_cache(_KNOWN)
def can_replace(noun: str, other: str) -> bool:
    """Whether both can be held, or neither; both swim, fly, or neither.

    So a thing on a table is replaced by a thing that can be on one.
    """
    if other in _NEVER_NEW:
        return False
    kinds = [[_ALIKE[kind] for kind in kinds_of(name) if kind in _ALIKE] for name in (noun, other)]
    return kinds[0][:1] == kinds[1][:1] and is_any(noun, _SMALL) == is_any(other, _SMALL)


_IN_ROOMS: Final = word_set("furniture appliance toilet sink bathtub shower mirror faucet")


def is_held_by(noun: str, before: str, rest: Iterable[str]) -> bool:
    """Whether what else the caption says goes with this noun alone: a toilet with a bathroom."""
    if is_any(noun, frozenset({"room"})):
        return any(is_any(other, _IN_ROOMS) for other in rest)
    return before in ("on", "in") and is_any(noun, frozenset({"appliance"}))


def can_take(verb: str, noun: str, other: str) -> bool:
    """Whether a verb that has this noun as its object can have the other."""
    row, taken = (row_of(DONE_TO, name) or frozenset() for name in (noun, other))
    return verb not in row or verb in taken
