"""Small files of the exact published layouts, for benchmarks whose files are not in hand.

Each function writes its benchmark under a data root, with images of a few pixels.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmark_fixtures import write, write_json, write_parquet, write_table
from PIL import Image

PAIRS = 6


def pixels(number: int, kind: str = "JPEG") -> bytes:
    data = io.BytesIO()
    Image.new("RGB", (4, 4), (number * 37 % 256, number * 91 % 256, 90)).save(data, kind)
    return data.getvalue()


def lines(rows: list[dict[str, Any]]) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def colorswap_row(number: int) -> dict[str, Any]:
    return {
        "id": 700 + number,
        "image_1": {"bytes": pixels(2 * number, "PNG"), "path": f"img_{number}_1.png"},
        "image_2": {"bytes": pixels(2 * number + 1, "PNG"), "path": f"img_{number}_2.png"},
        "caption_1": f"a red mole and a blue hill {number}",
        "caption_2": f"a blue mole and a red hill {number}",
        "image_source": "midjourney" if number % 2 else "sdxl",
        "caption_source": "human",
    }


def colorswap(root: Path) -> None:
    rows = [colorswap_row(number) for number in range(PAIRS)]
    write_parquet(root / "colorswap/data/test-00000-of-00001.parquet", rows)
    write_parquet(root / "colorswap/data/train-00000-of-00001.parquet", rows[:2])


def mmvp_rows() -> list[dict[str, Any]]:
    """Three pairs of the first pattern, three of the last."""
    kinds = dict.fromkeys(range(1, 7), "Orientation") | dict.fromkeys(
        range(265, 271), "Camera Perspective"
    )
    return [
        {"Question ID": number, "Type": kind, "Statement": f"mole number {number}"}
        for number, kind in kinds.items()
    ]


def mmvp_vlm(root: Path) -> None:
    folder = root / "mmvp_vlm"
    write_table(folder / "Questions.csv", mmvp_rows())
    for row in mmvp_rows():
        number = row["Question ID"]
        write(folder / "MLLM_VLM Images" / row["Type"] / f"{number}.jpg", pixels(number))


def controlled_rows(folder: str, objects: list[str], places: list[str]) -> list[dict[str, Any]]:
    def caption(pair: str, place: str) -> str:
        first, second = pair.split("+")
        return f"A {first} {place.replace('_', ' ').replace('-', ' ')} a {second}"

    return [
        {
            "image_path": f"data/{folder}/{pair.replace('+', f'_{place}_')}.jpeg",
            "caption_options": [
                caption(pair, other) for other in [place, *(p for p in places if p != place)]
            ],
        }
        for pair in objects
        for place in places
    ]


A_ROWS = controlled_rows(
    "controlled_images", ["mug+table", "hat+armchair"], ["left_of", "right_of", "on", "under"]
)
B_ROWS = controlled_rows(
    "controlled_clevr", ["cup+knife"], ["left_of", "right_of", "in-front_of", "behind"]
)


def whatsup(root: Path) -> None:
    write_json(root / "whatsup/controlled_images_dataset.json", A_ROWS)
    write_json(root / "whatsup/controlled_clevr_dataset.json", B_ROWS)
    for number, row in enumerate([*A_ROWS, *B_ROWS]):
        write(root / "whatsup" / row["image_path"].removeprefix("data/"), pixels(number))


def whatsup_coco(root: Path) -> None:
    one = [[n, f"A photo of a mole on the {w}", f"A photo of a mole on the {o}"] for n, w, o in ONE]
    two = [[n, f"A mole {w} a hat", f"A mole {o} a hat"] for n, w, o in TWO]
    write_json(root / "whatsup/coco_qa_one_obj.json", one)
    write_json(root / "whatsup/coco_qa_two_obj.json", two)
    for number, *_ in ONE + TWO:
        write(root / f"coco/val2017/{number:012}.jpg", pixels(number))


ONE = [(9, "left", "right"), (25, "right", "left"), (30, "top", "bottom")]
TWO = [(34, "above", "below"), (36, "to the left of", "to the right of")]


def whatsup_gqa(root: Path) -> None:
    one = [[str(n), f"A mole on the {w}", f"A mole on the {o}"] for n, w, o in ONE]
    two = [["2", "A mole in front of a hat", "A mole behind a hat"]]
    write_json(root / "whatsup/vg_qa_one_obj.json", one)
    write_json(root / "whatsup/vg_qa_two_obj.json", two)
    for number in (9, 25, 30):
        write(root / f"whatsup/vg_images/{number}.jpg", pixels(number))
    write(root / "visual_genome/VG_100K_2/2.jpg", pixels(2))


def svo_row(number: int, kind: str) -> dict[str, Any]:
    return {
        "sentence": f"A mole digs {number}.",
        "pos_triplet": "mole,dig,hole",
        "neg_triplet": "mole,sing,song",
        "pos_url": f"http://example.org/{number}.jpg",
        "neg_url": f"http://example.org/{number + 100}.jpg",
        "pos_image_id": number,
        "neg_image_id": number + 100,
        **{field: field.startswith(kind) for field in ("subj_neg", "verb_neg", "obj_neg")},
    }


def svo_probes(root: Path) -> None:
    kinds = ["subj", "verb", "verb", "obj", "obj", "none"]
    rows = [svo_row(number, kind) for number, kind in enumerate(kinds)]
    write_table(root / "svo_probes/svo_probes.csv", rows)
    for number in range(len(kinds)):
        write(root / f"svo_probes/images/{number}.jpg", pixels(number))
        write(root / f"svo_probes/images/{number + 100}.png", pixels(number + 100, "PNG"))


def eqben_rows() -> list[dict[str, Any]]:
    parts = ["eqbensd", "eqbenkubric_cnt", "eqbensd", "eqbenyoucook2", "eqbenag"]
    rows = [
        {
            "image0": f"{part}/v{n}/0.{'npy' if part == 'eqbenyoucook2' else 'png'}",
            "image1": f"{part}/v{n}/1.{'npy' if part == 'eqbenyoucook2' else 'png'}",
            "caption0": f"a mole digs {n}",
            "caption1": f"a mole sings {n}",
        }
        for n, part in enumerate(parts)
    ]
    rows[-1] |= {"caption0": ["a mole is digging", "digging"], "caption1": ["a mole is singing"]}
    return rows


def eqben_singles() -> list[dict[str, Any]]:
    """The same in four rows each, out of order."""
    found = [
        {
            "image": row[f"image{image}"],
            "caption": row[f"caption{caption}"],
            "private_info": {
                "dataset": row["image0"].partition("/")[0],
                "name": f"c{caption}i{image}",
                "sample_cnt": number,
            },
        }
        for number, row in enumerate(eqben_rows())
        for caption in (0, 1)
        for image in (0, 1)
    ]
    return found[::3] + found[1::3] + found[2::3]


def eqben(root: Path) -> None:
    write_json(root / "eqben/eqben_subset_10percent_final.json", eqben_rows())
    for number, row in enumerate(eqben_rows()):
        for side in ("image0", "image1"):
            name = row[side].replace(".npy", ".png")  # as a user converts them
            write(root / "eqben/image_subset" / name, pixels(number + int(side[-1]), "PNG"))


def counterfactual_rows() -> list[dict[str, Any]]:
    return [
        {
            "id": f"23630{n}_0",
            "image_0": f"23630{n}_0_img_0",
            "image_1": f"23630{n}_0_img_1",
            "caption_0": f"A mole digs {n}.",
            "caption_1": f"A fox digs {n}.",
        }
        for n in range(PAIRS)
    ]


def coco_counterfactuals(root: Path) -> None:
    folder = root / "coco_counterfactuals/data"
    write(folder / "examples.jsonl", lines(counterfactual_rows()))
    for number, row in enumerate(counterfactual_rows()):
        for side in (0, 1):
            write(folder / f"images/{row[f'image_{side}']}.jpg", pixels(number + side))


def vsr_row(number: int, label: int) -> dict[str, Any]:
    folder = "val2017" if number % 2 else "train2017"
    name = f"{number:012}.jpg"
    return {
        "image": name,
        "image_link": f"http://images.cocodataset.org/{folder}/{name}",
        "caption": f"The mole is under the hat {number}.",
        "label": label,
        "relation": "under" if number % 3 else "left of",
        "annotator_id": 2,
        "vote_true_validator_id": "[18, 2]",
        "vote_false_validator_id": "[1]",
    }


def vsr(root: Path) -> None:
    rows = [vsr_row(number, number // 2 % 2) for number in range(8)]
    write(root / "vsr/splits/random/test.jsonl", lines(rows))
    write(root / "vsr/splits/zeroshot/test.jsonl", lines(rows[:2]))
    for number, row in enumerate(rows):
        write(root / "coco" / row["image_link"].split("/", 3)[3], pixels(number))


def vismin_row(number: int) -> dict[str, Any]:
    """Ids begin anew in every category."""
    return {
        "id": number // 2,
        "image_0": {"bytes": pixels(2 * number, "PNG"), "path": None},
        "image_1": {"bytes": pixels(2 * number + 1, "PNG"), "path": None},
        "text_0": f"one mole {number}",
        "text_1": f"two moles {number}",
        "category": "counting" if number % 2 else "object",
    }


VISMIN_ORDERS = (
    ("T0_I0 > T1_I0 & T1_I1 > T0_I1", "T0_I0 > T0_I1 & T1_I1 > T1_I0"),
    ("T1_I0 > T0_I0 & T0_I1 > T1_I1", "T0_I1 > T0_I0 & T1_I0 > T1_I1"),
)


def vismin_solution(number: int) -> dict[str, Any]:
    """Of odd rows, the first caption belongs to the second image."""
    text, image = VISMIN_ORDERS[number % 2]
    category = "counting" if number % 2 else "object"
    return {"idx": number // 2, "Text": text, "Image": image, "category": category}


def vismin(root: Path) -> None:
    rows = [vismin_row(number) for number in range(PAIRS)]
    write_parquet(root / "vismin/data/test-00000-of-00001.parquet", rows)
    write_table(root / "vismin/sim_solution.csv", [vismin_solution(n) for n in range(PAIRS)])


def bla_row(number: int) -> dict[str, Any]:
    group = {
        "group_index": 0,
        "True1": f"the mole watches the fox {number}",
        "True2": f"the fox is watched by the mole {number}",
        "False1": f"the fox watches the mole {number}",
        "False2": f"the mole is watched by the fox {number}",
        "score": [0.9, 0.9, 0.9, 0.9],
    }
    return {"image_id": 1047 + number, "index": number, "caption_group": [group]}


def bla(root: Path) -> None:
    folder = root / "bla/BLA_benchmark"
    for task in ("active_passive", "coordination", "relative_clause"):
        rows = [bla_row(0), bla_row(1)]
        write_json(folder / f"annotations/{task}_captions.json", rows)
    write(folder / "images/1047.jpg", pixels(0))
    write(root / "visual_genome/VG_100K/1048.jpg", pixels(1))


def natural_rows() -> list[dict[str, Any]]:
    return [
        {
            "index": n,
            "image_0": f"{n}_0.jpg",
            "image_1": f"{n}_1.jpg",
            "caption_0": f"A mole digs {n}.",
            "caption_1": f"A mole sings {n}.",
        }
        for n in range(PAIRS)
    ]


def naturalbench(root: Path) -> None:
    folder = root / "naturalbench/NaturalBench-Retrieval"
    write_json(folder / "metadata.json", natural_rows())
    for n in range(PAIRS):
        for side in (0, 1):
            write(folder / f"images/{n}_{side}.jpg", pixels(n + side))


def question_row(number: int, first: str = "Yes") -> dict[str, Any]:
    """Of the hub's table; every third is a question with two options."""
    second = "No" if first == "Yes" else "Yes"
    row = {
        "Index": number,
        "Image_0": {"bytes": pixels(2 * number, "PNG"), "path": None},
        "Image_1": {"bytes": pixels(2 * number + 1, "PNG"), "path": None},
        "Question_0": f"Does mole {number} dig?",
        "Question_1": f"Does mole {number} sing?",
        "Image_0_Question_0": first,
        "Image_1_Question_0": second,
        "Image_0_Question_1": second,
        "Image_1_Question_1": first,
        "Question_Type": "yes_no",
        "Source": "Flickr30K",
    }
    if number % 3 == 2:
        answers = {f"Image_{i}_Question_{q}": "AB"[(i + q) % 2] for i in (0, 1) for q in (0, 1)}
        row |= {"Question_Type": "multiple_choice", **answers}
    return row


def naturalbench_questions(root: Path) -> None:
    rows = [question_row(number, "Yes" if number % 2 else "No") for number in range(6)]
    write_parquet(root / "naturalbench/data/train-00000-of-00001.parquet", rows)


VIDEO = "MSR-VTT-videoTrainValVideo_video2044-shot1_0"
STATIC = "open-images-2057_2fdaa4ac90531880"


def imagecode(root: Path) -> None:
    described = {VIDEO: {"6": "a mole digs", "7": "a mole looks up "}, STATIC: {"0": "a hat"}}
    write_json(root / "imagecode/valid_data.json", described)
    for number in range(10):
        write(root / f"imagecode/{VIDEO}/img{3 * number}.jpg", pixels(number))  # frames
        write(root / f"imagecode/image-sets/{STATIC}/img{number}.jpg", pixels(number))


SPEC_CHOICES = {"existence": 2, "absolute_size": 3, "relative_size": 3, "relative_spatial": 4}
SPEC_CHOICES |= {"absolute_spatial": 9, "count": 9}


def spec(root: Path) -> None:
    for subset, choices in SPEC_CHOICES.items():
        folder = root / "spec/data" / subset
        images = [f"images/0_{number}.jpg" for number in range(choices)]
        captions = [f"{number} moles" for number in range(choices)]
        write_json(folder / "image2text.json", [{"query": images[1], "keys": captions, "label": 1}])
        write_json(folder / "text2image.json", [{"query": captions[0], "keys": images, "label": 0}])
        for number, image in enumerate(images):
            write(folder / image, pixels(number))


LAYOUTS: dict[str, Callable[[Path], None]] = {
    "bla": bla,
    "coco-counterfactuals": coco_counterfactuals,
    "colorswap": colorswap,
    "eqben": eqben,
    "imagecode": imagecode,
    "mmvp-vlm": mmvp_vlm,
    "naturalbench": naturalbench_questions,
    "naturalbench/answers": naturalbench_questions,
    "naturalbench/retrieval": naturalbench,
    "spec": spec,
    "spec/text-to-image": spec,
    "svo-probes": svo_probes,
    "vismin": vismin,
    "vsr": vsr,
    "whatsup": whatsup,
    "whatsup/coco": whatsup_coco,
    "whatsup/gqa": whatsup_gqa,
}
