"""What kind of data files hold, by somebody else's network: Magika's, an ONNX file inside a PyPI package.

    pip install magika
    python examples/onnx_classify.py FILE ...          # --device webgpu, --model FOLDER

Magika (Fratantonio et al., "Magika: AI-Powered Content-Type Detection", 2024) reads 1024 bytes from the beginning of a
file and 1024 from its end, without the blanks around them, each as a whole number, and 256 where there are none. Its
network was trained in JAX and left that as an ONNX file of 3 MB; here it becomes a graph like all others. `--model` is
a folder that has model.onnx and config.min.json, which names the sizes and the kinds.
"""

from __future__ import annotations

import argparse
import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from anneal import onnx
from anneal.errors import AnnealError


def features(data: bytes, config: dict[str, Any]) -> list[int]:
    """The numbers that the network gets for a file: its beginning, then its end."""
    block, nothing = config["block_size"], config["padding_token"]
    begin = data[:block].lstrip()[: config["beg_size"]]
    end = data[-block:].rstrip()[-config["end_size"] :]
    before = [nothing] * (config["end_size"] - len(end))
    return [*begin, *[nothing] * (config["beg_size"] - len(begin)), *before, *end]


def installed() -> Path | None:
    """The newest model of the magika package, if that is there; the package itself is not imported."""
    found = find_spec("magika")
    if found is None or not found.submodule_search_locations:
        return None
    return max(Path(found.submodule_search_locations[0]).glob("models/*/model.onnx"), default=None)


def classify(files: list[Path], folder: Path, device: str | None) -> list[tuple[str, float]]:
    """The kind of each file, and how sure the network is of it; all files in one run."""
    config = json.loads((folder / "config.min.json").read_text(encoding="utf-8"))
    model = onnx.load(folder / "model.onnx", device)
    rows = np.array([features(file.read_bytes(), config) for file in files], np.int32)
    scores = model(rows).numpy()
    kinds = config["target_labels_space"]
    return [(kinds[row.argmax()], float(row.max())) for row in scores]


def main() -> int:
    """Print the kind of each file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--model", type=Path, help="a folder with model.onnx and config.min.json")
    parser.add_argument("--device", choices=("cpu", "webgpu"))
    options = parser.parse_args()
    model = None if options.model is not None else installed()
    if options.model is None and model is None:
        print("there is no model: pip install magika, or name its folder, --model FOLDER", file=sys.stderr)
        return 1
    folder = options.model if model is None else model.parent
    try:
        found = classify(options.files, folder, options.device)
    except (AnnealError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    for file, (kind, sure) in zip(options.files, found, strict=True):
        print(f"{file}: {kind} ({sure:.1%})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
