"""Benchmarks by id. Adding one is a file with a `Benchmark` and a line here.

An id may carry options, `world-swap:size=500,seed=3`, ask for positives to be added,
`sugarcrepe+hp`, name a folder of images, `classification/pets` or `probe/pets`, or be the path of a
case file, of WebDataset shards or of a table with images.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Final

from counterpoint._util.options import Option, Value, read_options
from counterpoint._util.registry import Registry
from counterpoint.benchmarks.benchmark import (
    WITH_POSITIVES,
    Benchmark,
    LoadedBenchmark,
    Options,
    Size,
)
from counterpoint.benchmarks.shards import TAR, holds_shards, own_file
from counterpoint.cases import Cases

_HOME: Final = "counterpoint.benchmarks"

BENCHMARKS: Final = Registry(
    "benchmark",
    _HOME,
    {
        "aro/coco-order": f"{_HOME}.aro:COCO",
        "aro/flickr30k-order": f"{_HOME}.aro:FLICKR30K",
        "aro/vg-attribution": f"{_HOME}.aro:ATTRIBUTION",
        "aro/vg-relation": f"{_HOME}.aro:RELATION",
        "bivlc": f"{_HOME}.bivlc:BIVLC",
        "bivlc/image-detection": f"{_HOME}.bivlc:IMAGE_DETECTION",
        "bivlc/text-detection": f"{_HOME}.bivlc:TEXT_DETECTION",
        "bla": f"{_HOME}.bla:BLA",
        "classification/cifar10": f"{_HOME}.classification:CIFAR10",
        "classification/cifar100": f"{_HOME}.classification:CIFAR100",
        "classification/imagenet": f"{_HOME}.classification:IMAGENET",
        "classification/vtab": f"{_HOME}.vtab:VTAB",
        "coco-counterfactuals": f"{_HOME}.coco_counterfactuals:COCO_COUNTERFACTUALS",
        "cola": f"{_HOME}.cola:COLA",
        "colorswap": f"{_HOME}.colorswap:COLORSWAP",
        "crepe/productivity": f"{_HOME}.crepe:PRODUCTIVITY",
        "crepe/systematicity": f"{_HOME}.crepe:SYSTEMATICITY",
        "cxc/image-image": f"{_HOME}.cxc:IMAGE_IMAGE",
        "cxc/image-text": f"{_HOME}.cxc:IMAGE_TEXT",
        "cxc/renderings": f"{_HOME}.cxc:RENDERINGS",
        "eccv-caption": f"{_HOME}.eccv_caption:ECCV_CAPTION",
        "eqben": f"{_HOME}.eqben:EQBEN",
        "hard-positives/replace": f"{_HOME}.hard_positives:REPLACE",
        "hard-positives/swap": f"{_HOME}.hard_positives:SWAP",
        "imagecode": f"{_HOME}.imagecode:IMAGECODE",
        "mmvp-vlm": f"{_HOME}.mmvp_vlm:MMVP_VLM",
        "naturalbench": f"{_HOME}.naturalbench:QUESTIONS",
        "naturalbench/answers": f"{_HOME}.naturalbench:ANSWERS",
        "naturalbench/retrieval": f"{_HOME}.naturalbench:RETRIEVAL",
        "negbench": f"{_HOME}.negbench:NEGBENCH",
        "negbench/retrieval": f"{_HOME}.negbench:RETRIEVAL",
        "retrieval/coco": f"{_HOME}.retrieval:COCO",
        "retrieval/flickr30k": f"{_HOME}.retrieval:FLICKR30K",
        "rococo": f"{_HOME}.rococo:ROCOCO",
        "rococo/retrieval": f"{_HOME}.rococo:RETRIEVAL",
        "spec": f"{_HOME}.spec:SPEC",
        "spec/text-to-image": f"{_HOME}.spec:TEXT_TO_IMAGE",
        "sugarcrepe": f"{_HOME}.sugarcrepe:SUGARCREPE",
        "sugarcrepe-pp": f"{_HOME}.sugarcrepe:SUGARCREPE_PP",
        "svo-probes": f"{_HOME}.svo_probes:SVO_PROBES",
        "valse": f"{_HOME}.valse:VALSE",
        "visla": f"{_HOME}.visla:VISLA",
        "vismin": f"{_HOME}.vismin:VISMIN",
        "vl-checklist": f"{_HOME}.vl_checklist:VL_CHECKLIST",
        "vsr": f"{_HOME}.vsr:VSR",
        "whatsup": f"{_HOME}.whatsup:WHATSUP",
        "whatsup/coco": f"{_HOME}.whatsup:COCO",
        "whatsup/gqa": f"{_HOME}.whatsup:GQA",
        "winoground": f"{_HOME}.winoground:WINOGROUND",
        "world-bi": f"{_HOME}.world:BI",
        "world-classification": f"{_HOME}.world:CLASSIFICATION",
        "world-images": f"{_HOME}.world:IMAGES",
        "world-replace": f"{_HOME}.world:REPLACE",
        "world-retrieval": f"{_HOME}.world:RETRIEVAL",
        "world-swap": f"{_HOME}.world:SWAP",
    },
)


_CASE_FILES: Final = (".parquet", ".jsonl", TAR)
_OTHER_FILES: Final = (".json", ".csv", ".tsv")  # are refused by `own_file`, which says why
_FOLDERS: Final = {  # any folder of images is a benchmark; the longest beginning counts
    "classification/vtab/": f"{_HOME}.vtab:task_benchmark",
    "classification/": f"{_HOME}.classification:folder_benchmark",
    "probe/": f"{_HOME}.probe:probe_benchmark",
}


def base_id(id: str) -> str:
    """`sugarcrepe+hp:positives=FILE` is `sugarcrepe`."""
    return _split(id)[0].removesuffix(WITH_POSITIVES)


def _split(id: str) -> tuple[str, str]:
    """The name and the options behind it; the name of a case file may hold a colon."""
    name, _, options = id.partition(":")
    if WITH_POSITIVES in id:
        before, _, after = id.partition(f"{WITH_POSITIVES}:")
        return (before + WITH_POSITIVES, after) if after else (id, "")
    if id.endswith(_CASE_FILES) and name not in BENCHMARKS.names():
        return id, ""
    return name, options


def find_benchmark(id: str) -> Benchmark:
    """What is known of a benchmark, by id or by the path of a case file."""
    name, _ = _split(id)
    plain = name.removesuffix(WITH_POSITIVES)
    own = Benchmark(plain, "your own cases", "any", "strict", lambda _: own_file(plain))
    if plain.endswith((*_CASE_FILES, *_OTHER_FILES)):
        found = own
    elif plain.startswith(tuple(_FOLDERS)) and plain not in BENCHMARKS.names():
        maker = next(maker for begin, maker in _FOLDERS.items() if plain.startswith(begin))
        module, _, function = maker.partition(":")
        found = getattr(import_module(module), function)(plain)
    elif plain not in BENCHMARKS.names() and holds_shards(plain):
        found = own
    else:
        found = BENCHMARKS.get(plain)
    if plain == name:
        return found
    from counterpoint.benchmarks.positives import with_positives

    return with_positives(found)


def load_benchmark(
    id: str | Path, data: str | Path | None = None, *, protocol: str | None = None
) -> LoadedBenchmark:
    """A benchmark and its cases, by id or by the path of a case file.

        benchmark, cases = load_benchmark("world-swap:size=200")

    `protocol` matters to benchmarks that are read in another way for it: retrieval with the
    captions of `aro-retrieval`.
    """
    from counterpoint.data import data_root  # not for lists: downloads take long to import

    name = str(id)
    benchmark = find_benchmark(name)
    root = data_root(None if data is None else Path(data))
    followed = protocol if protocol in benchmark.loads else ""
    options = Options(root, _read_options(benchmark, _split(name)[1]), followed or "")
    training = None if benchmark.training is None else benchmark.training(options)
    cases = benchmark.cases(options)
    return LoadedBenchmark(name, benchmark, cases, options.protocol, training)


def own_cases(cases: Cases, name: str = "cases") -> LoadedBenchmark:
    """A case table of the user's own as a benchmark."""
    return LoadedBenchmark(
        name, Benchmark(name, "your own cases", "any", "strict", lambda _: cases), cases
    )


def list_benchmarks() -> list[str]:
    """The ids of all benchmarks, those of plug-ins included."""
    return BENCHMARKS.names()


def published_files(id: str, protocol: str = "") -> Mapping[str, Size]:
    """What a benchmark consists of: how much each file holds, by what the ids of its cases begin
    with.

    A benchmark of one file has the one key "". Nothing is known of case files.
    """
    benchmark = find_benchmark(id)
    if benchmark.files is None:
        return {} if benchmark.count is None else {"": Size(benchmark.count)}
    options = _read_options(benchmark, _split(id)[1])
    followed = protocol if protocol in benchmark.loads else ""
    sizes = benchmark.files(Options(Path(), options, followed))
    return {file: size if isinstance(size, Size) else Size(size) for file, size in sizes.items()}


def _read_options(benchmark: Benchmark, text: str) -> dict[str, Value]:
    known = {key: Option(value) for key, value in benchmark.defaults.items()}
    return read_options(benchmark.id, text, known, ",")
