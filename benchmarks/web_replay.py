"""An exported page's kernels on an adapter of this machine, outside a browser, beside the values that travel with it.

    anneal export nanogpt -o page --for desktop
    python -m benchmarks.web_replay page                        wgpu (naga); ANNEAL_WEBGPU=dawn: Dawn, as Chrome has it

It reads a page's files as `anneal.js` does, and runs the example of every function of every program whose features and
limits the adapter has. ANNEAL_ADAPTER chooses the adapter. Exit code 1: a result is off by more than it may be.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import wgpu

from anneal.backend import get_device
from anneal.pages.exporting import loaded
from anneal.tensor import io

HELD = {"f32": np.float32, "i32": np.int32, "u32": np.uint32, "bool": np.uint32}
ZEROS = {"F32": np.float32, "I32": np.int32, "U32": np.uint32}
USAGE = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
WORDS: dict[str, Callable[[int, int], int]] = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": lambda a, b: a // b,
         "%": lambda a, b: a % b, "min": min, "max": max}  # fmt: skip


def evaluated(e: Any, values: Mapping[str, int]) -> int:
    """A size of model.json for values of its variables."""
    if isinstance(e, list):
        return int(WORDS[e[0]](evaluated(e[1], values), evaluated(e[2], values)))
    return values[e] if isinstance(e, str) else int(e)


def arrays_of(folder: Path, name: str) -> dict[str, Any]:
    """The arrays of a safetensors file."""
    return {key: t.numpy() for key, t in io.safe_load(folder / name).items()}


class Replay:
    """A program of a page on the webgpu device. `weights` are the tensors by name."""

    def __init__(self, program: dict[str, Any], sources: list[str], weights: Mapping[str, Any]) -> None:
        self.program, self.device = program, get_device("webgpu")
        self.gpu: Any = self.device.gpu  # type: ignore[attr-defined]
        self.queue: Any = self.device.queue  # type: ignore[attr-defined]
        self.buffers = [self.gpu.create_buffer(size=size, usage=USAGE) for size in program["buffers"]]
        self.weights = weights
        self.tables: dict[str, tuple[Any, list[str]]] = {}
        self.kernels = [self._kernel(k, sources[k["source"]]) for k in program["kernels"]]

    def _kernel(self, k: dict[str, Any], source: str) -> tuple[Any, Any]:
        kinds = (wgpu.BufferBindingType.read_only_storage, wgpu.BufferBindingType.storage)
        layout = self.gpu.create_bind_group_layout(
            entries=[
                {"binding": n, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": kinds[written]}}
                for n, _, _, _, written in k["bindings"]
            ]
        )
        made_by: Any = self.device.made_by  # type: ignore[attr-defined]
        module = made_by.shader_module(self.gpu, source, k["name"], False)
        whole = self.gpu.create_pipeline_layout(bind_group_layouts=[layout])
        return made_by.pipeline(self.gpu, k["name"], whole, module), layout

    def _dispatch(self, call: list[Any], values: Mapping[str, int]) -> tuple[Any, ...] | None:
        number, slots, (x, y, z), *needed = call
        if needed and z == 1:
            count = evaluated(needed[0], values)
            x, y = (count, 1) if count <= x else (x, -(-count // x))
        if min(x, y, z) <= 0:
            return None
        k = self.program["kernels"][number]
        bound = {n: self.buffers[b] for n, b in enumerate(slots)}
        if k["variables"]:
            bound[max(b[1] for b in k["bindings"])] = self._table(k["variables"])
        entries = [
            {"binding": n, "resource": {"buffer": bound[s], "offset": at, "size": min(size, bound[s].size - at)}}
            for n, s, at, size, _ in k["bindings"]
        ]
        pipeline, layout = self.kernels[number]
        return pipeline, self.gpu.create_bind_group(layout=layout, entries=entries), x, y, z

    def _table(self, names: list[str]) -> Any:
        key = ",".join(names)
        if key not in self.tables:
            self.tables[key] = self.gpu.create_buffer(size=-(-len(names) // 4) * 16, usage=USAGE), names
        return self.tables[key][0]

    def call(self, name: str, inputs: Mapping[str, Any], values: Mapping[str, int]) -> list[Any]:
        """The results of a function, from the tensors as they were exported."""
        f = self.program["functions"][name]
        for key, b in self.program["weights"].items():
            self.queue.write(self.buffers[b], np.ascontiguousarray(self.weights[key]).reshape(-1))
        for p in f["inputs"]:
            self.queue.write(self.buffers[p["buffer"]], inputs[p["name"]].astype(HELD[p["dtype"]]).reshape(-1))
        dispatches = [d for c in f["calls"] if (d := self._dispatch(c, values)) is not None]
        for table, names in self.tables.values():
            if all(n in values for n in names):
                self.queue.write(table, np.array([values[n] for n in names], np.int32))
        encoder = self.queue.encode(self.queue.handles(dispatches))
        for a, b in f["copies"]:
            encoder.copy_buffer_to_buffer(self.buffers[a], 0, self.buffers[b], 0, self.buffers[a].size)
        self.queue.submit(self.queue.finish(encoder))
        found = self.queue.read([(self.buffers[p["buffer"]], 4 * math.prod(p["room"])) for p in f["outputs"]])
        out = []
        for p, data in zip(f["outputs"], found, strict=True):
            whole = np.frombuffer(bytes(data), HELD[p["dtype"]]).reshape(p["room"])
            out.append(whole[tuple(slice(evaluated(n, values)) for n in p["shape"])])
        return out


def lacking(program: dict[str, Any]) -> list[str]:
    """The features and limits of a program that the adapter has not."""
    device: Any = get_device("webgpu")
    limits = {
        "".join(w.capitalize() if n else w for n, w in enumerate(k.split("-"))): v for k, v in device.gpu_limits.items()
    }
    names = {"subgroups": "subgroup"}
    out = [f for f in program["features"] if names.get(f, f) not in device.features]
    out += [n for n, v in program["limits"].items() if limits.get(n, v) < v]
    return out + ["subgroups"] * (device.target.subgroup < program["subgroup"])


def replay(folder: Path) -> bool:
    """Print how far each result of a page is off; True if none is off by more than it may be."""
    plan = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    pack = (folder / "kernels.wgsl").read_bytes()
    sources = [pack[a:b].decode() for a, b in plan["sources"]]
    weights = loaded(arrays_of(folder, "weights.safetensors"), plan["forms"])
    weights |= {n: np.zeros(shape, ZEROS[kind]) for n, (kind, shape) in plan["zeros"].items()}
    examples = arrays_of(folder, "check.safetensors")
    right, ran = True, False
    for program in plan["programs"]:
        if missing := lacking(program):
            print(f"{program['profile']}: left out, the adapter lacks {', '.join(missing)}")
            continue
        if "subgroups" in program["features"] and not get_device("webgpu").target.names_subgroups:  # type: ignore[attr-defined]
            print(f"{program['profile']}: left out, naga does not know `enable subgroups`; ANNEAL_WEBGPU=dawn does")
            continue
        made = Replay(program, sources, weights)
        for name, check in plan["check"].items():
            f = program["functions"][name]
            inputs = {p["name"]: examples[f"{name}/in/{p['name']}"] for p in f["inputs"]}
            found = made.call(name, inputs, {v["name"]: v["example"] for v in f["variables"]})
            for p, got, bound in zip(f["outputs"], found, check["bounds"][program["plan"]], strict=True):
                want = examples[f"{name}/out/{p['name']}"].astype(np.float64)
                off = float(np.max(np.abs(got.astype(np.float64).reshape(want.shape) - want), initial=0.0))
                right &= off <= bound
                ran = True
                print(f"{program['profile']}: {name} {p['name']} is off by {off:.2e}, and may be by {bound:.2e}")
    print(f"{'right' if right and ran else 'wrong'} on {get_device('webgpu').describe()['adapter']}")
    return right and ran


def main() -> None:
    """Replay the pages that the command line names."""
    wrong = [folder for folder in sys.argv[1:] if not replay(Path(folder))]
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
