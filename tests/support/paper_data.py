"""A data root with a few rows of every file that the papers' commands read, in its authors' form.

Images are noise: what a command makes of them is the same for all of them. Captions are such that
the rules find words to change.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import llm_server
import numpy as np
from benchmark_fixtures import write, write_json, write_parquet, write_table
from PIL import Image

from counterpoint.benchmarks.classification import vtab_tasks

CAPTIONS = (
    "a man in a red shirt is holding a large umbrella and a small dog",
    "a black cat and a white dog are sitting on a wooden bench",
    "two women are riding brown horses near a river and a tall tree",
    "a young boy is eating a green apple and a yellow banana",
    "a big bus and a small car are parked in front of a brick building",
    "a woman wearing a blue hat is walking behind an old bicycle",
    "a red kite and a white bird are flying above the beach",
    "a small dog is running next to a large brown cow",
    "a bowl of soup and a plate of bread are on a round table",
    "three giraffes are standing under a tall tree and looking at a zebra",
    "a man is riding a black motorcycle down a narrow street",
    "a girl in a pink dress and a boy in a blue shirt are playing tennis",
)
TRAIN = 20  # captions of COCO train2017
ROWS = 6  # of an annotation file
IMAGES = 12  # of a gallery
# That the text models know; of other words that change they know neither, and tie.
WORDS = sorted({word for caption in CAPTIONS for word in caption.split()})[:30]


def photograph(number: int) -> bytes:
    data = io.BytesIO()
    pixels = np.random.default_rng(number).integers(0, 256, (40, 48, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(data, "JPEG")
    return data.getvalue()


def photographs(folder: Path, names: Iterable[str]) -> None:
    for name in names:
        path = folder / name
        write(path, photograph(crc32("/".join(path.parts[-3:]).encode())))


def image_name(number: int) -> str:
    """Of COCO's train images: some of these are drawn for validation whatever share is asked."""
    return f"{120 + number:012}.jpg"


def coco_captions(file: Path, captions: Sequence[str]) -> Path:
    """As COCO's `captions_train2017.json`: an image has one caption here."""
    images = [{"id": n, "file_name": image_name(n)} for n in range(len(captions))]
    notes = [{"id": 100 + n, "image_id": n, "caption": c} for n, c in enumerate(captions)]
    return write_json(file, {"images": images, "annotations": notes})


def working_folder(folder: Path) -> None:
    """What a reader is assumed to have in the folder of the commands."""
    for name in ("train2014", "val2017"):
        coco_captions(folder / f"captions_{name}.json", CAPTIONS)
    train = [*CAPTIONS, *(f"{caption} today" for caption in CAPTIONS[: TRAIN - len(CAPTIONS)])]
    coco_captions(folder / "captions_train2017.json", train)
    photographs(folder / "IMAGES", ["7.jpg", *map(image_name, range(TRAIN))])
    write_json(folder / "val_sceneGraphs.json", {"7": _SCENE_GRAPH})
    (folder / "masks").mkdir()
    for n in range(TRAIN):
        mask = Image.new("L", (48, 40))
        mask.paste(255, (0, 0, 24, 40))
        mask.save(folder / "masks" / image_name(n).replace(".jpg", ".png"))
    replaced = [json.dumps(caption.replace("a ", "one ", 1)) for caption in train]
    write(folder / "replace.jsonl", "\n".join(replaced))


def _object(name: str, attribute: str, **relation: str) -> dict[str, Any]:
    relations = [{"name": name, "object": other} for name, other in relation.items()]
    box = {"x": 2, "y": 2, "w": 24, "h": 24}
    return {"name": name, "attributes": [attribute], "relations": relations, **box}


_SCENE_GRAPH = {  # as GQA has them
    "width": 48,
    "height": 40,
    "objects": {"1": _object("man", "crouched", behind="2"), "2": _object("door", "open")},
}


_SYNONYMS = {  # by a word of the question's instruction
    "verb": {"holding": "gripping", "sitting": "seated", "riding": "travelling on"},
    "where": {"near": "close to", "behind": "at the back of", "above": "over", "under": "below"},
    "synonym": {"small": "little", "large": "big", "big": "large", "old": "aged", "tall": "high"}
    | {"wooden": "timber", "young": "youthful", "red": "crimson", "round": "circular"}
    | {"narrow": "thin", "pink": "rosy"},
}


def reply(asked: llm_server.Asked) -> str:
    """Positives by synonyms and "and" reversed; else as the server of the other tests."""
    if asked.label == "and":
        return re.sub(r"^(.+) and (.+?) (are|is) ", r"\2 and \1 \3 ", asked.caption)
    if asked.label:
        article, _, rest = asked.caption.partition(" ")
        said = _REPLY(asked._replace(caption=rest))
        return re.sub(r"(New sentence: )(.*)", rf"\1{article} \2.", said)
    instruction = asked.body["messages"][0]["content"].split("\n\n")[0]
    kind = next(kind for kind in _SYNONYMS if kind in instruction)
    for word, synonym in _SYNONYMS[kind].items():
        if f" {word} " in asked.caption:
            return asked.caption.replace(f" {word} ", f" {synonym} ", 1)
    return "No"


_REPLY = llm_server.reply


def data_root(root: Path) -> Path:
    for part in (
        *(_hard_positives, _vg_attribution, _vg_relation, _sugarcrepe, _bivlc, _karpathy),
        *(_vl_checklist, _crepe, _classification, _winoground),
    ):
        part(root)
    photographs(root / "visual_genome/VG_100K", [f"{n}.jpg" for n in range(ROWS)])
    return root


_REPLACED = {
    "relations": ("under", "beneath", "on"),
    "attributes": ("wet", "damp", "dry"),
}


def _hard_positives(root: Path) -> None:
    for kind, words in _REPLACED.items():
        for half, true in (("data", words[0]), ("swapped_data", words[1])):
            rows = [
                {
                    "image_id": str(n),
                    "true_caption": f"dog {n} {true} hat",
                    "false_caption": f"dog {n} {words[2]} hat",
                    "image_path": f"data/VG_100K/{n}.jpg",
                }
                for n in range(ROWS)
            ]
            write_json(root / f"hard_positives/{half}/vl_checklist_{kind}.json", rows)


def _region(number: int, **more: Any) -> dict[str, Any]:
    box = {"bbox_x": 2, "bbox_y": 3, "bbox_w": 30, "bbox_h": 30}
    return {"image_id": str(number), "image_path": f"{number}.jpg", **box, **more}


def _vg_attribution(root: Path) -> None:
    rows = [
        _region(
            n,
            true_caption="the black cat and the white dog",
            false_caption="the white cat and the black dog",
            attributes=["black", "white"],
        )
        for n in range(ROWS)
    ]
    write_json(root / "aro/visual_genome_attribution.json", rows)


def _vg_relation(root: Path) -> None:
    rows = [
        _region(
            n,
            true_caption=f"the man is {relation} the tree",
            false_caption=f"the tree is {relation} the man",
            relation_name=relation,
        )
        for n, relation in enumerate(("behind", "holding") * (ROWS // 2))
    ]
    write_json(root / "aro/visual_genome_relation.json", rows)


SUBSETS = ("add_att", "add_obj", "replace_att", "replace_obj", "replace_rel", "swap_att")
SUBSETS = (*SUBSETS, "swap_obj")


def _sugarcrepe(root: Path) -> None:
    for subset in SUBSETS:
        rows = {
            str(n): {
                "filename": f"{n:012}.jpg",
                "caption": CAPTIONS[n],
                "negative_caption": CAPTIONS[n + 1],
            }
            for n in range(2)
        }
        write_json(root / f"sugarcrepe/{subset}.json", rows)
    photographs(root / "coco/val2017", [f"{n:012}.jpg" for n in range(2)])


def _bivlc(root: Path) -> None:
    rows = [
        {
            "image": {"bytes": photograph(n), "path": f"{n}.jpg"},
            "caption": f"{CAPTIONS[n].capitalize()}.",
            "negative_caption": f"{CAPTIONS[n + 1].capitalize()}.",
            "negative_image": {"bytes": photograph(n + 50), "path": f"neg{n}.jpg"},
            "type": kind,
            "subtype": "obj",
        }
        for n, kind in enumerate(("replace", "add", "swap") * (ROWS // 3))
    ]
    write_parquet(root / "bivlc/data/test-00000-of-00001.parquet", rows)


def _karpathy(root: Path) -> None:
    files = {"coco": "coco_karpathy_test.json", "flickr30k": "flickr30k_test.json"}
    for name, file in files.items():
        rows = [
            {"image": f"test/{n}.jpg", "caption": [f"{CAPTIONS[n]} {i}" for i in range(5)]}
            for n in range(IMAGES)
        ]
        write_json(root / name / file, rows)
        photographs(root / name / "test", [f"{n}.jpg" for n in range(IMAGES)])


def _vl_checklist(root: Path) -> None:
    changed = {"Attribute/vg/color": ("red", "blue"), "Relation/vg/spatial": ("under", "above")}
    for file, (word, other) in changed.items():
        rows = [
            [f"VG_100K/{n}.jpg", {side: [f"dog {n} {it} hat"] for side, it in pair}]
            for n in range(ROWS)
            for pair in [(("POS", word), ("NEG", other))]
        ]
        write_json(root / f"vl_checklist/{file}.json", rows)


def _winoground(root: Path) -> None:
    tags = ("Object", "Relation")
    rows = [
        {"id": n, "image_0": f"ex_{n}_img_0", "image_1": f"ex_{n}_img_1"}
        | {"caption_0": f"a dog under a tree {n}", "caption_1": f"a tree under a dog {n}"}
        | {"tag": "Scope", "secondary_tag": "", "num_main_preds": 1, "collapsed_tag": tag}
        for n, tag in enumerate(tags)
    ]
    write(root / "winoground/data/examples.jsonl", "\n".join(map(json.dumps, rows)))
    photographs(
        root / "winoground/data/images", [f"ex_{n}_img_{i}.png" for n in (0, 1) for i in (0, 1)]
    )


def _crepe(root: Path) -> None:
    rows = [
        {"region_id": n, "image_id": n, "caption": f"a dog in a hat {n}", "x": 1, "y": 1}
        | {"width": 30, "height": 30, "hard_negs": str([f"a cat in a hat {n}", f"a hat {n}"])}
        for n in range(ROWS)
    ]
    path = "crepe/prod_hard_negatives/atom/prod_vg_hard_negs_atom_complexity_4.csv"
    write_table(root / path, rows)


def _classification(root: Path) -> None:
    names = {"imagenet": ("n01440764", "n01443537")}
    names |= dict.fromkeys(("cifar10", "cifar100"), ("cat", "dog"))
    for name, classes in names.items():
        for split in ("train", "test"):
            for one in classes:
                photographs(root / f"classification/{name}/{split}/{one}", ("0.jpg", "1.jpg"))
    write(root / "classification/imagenet/classes.txt", "tench\ngoldfish\n")
    for task in vtab_tasks():
        photographs(
            root / f"classification/vtab/{task}", [f"{n % 2}/{n}.jpg" for n in range(IMAGES)]
        )
