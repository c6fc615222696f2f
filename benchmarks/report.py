"""BENCHMARKS.md from the JSON in benchmarks/results: what every benchmark printed with `--json`, one line a run.

python -m benchmarks.matmul --device webgpu --peers wgsl,torch --json > benchmarks/results/h200-matmul.json
python -m benchmarks.report            writes BENCHMARKS.md
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import (
    _harness as h,
    compile_time,
    eager,
    gpt2,
    matmul,
    memory,
    memory_bound,
    nanogpt,
    onnx_peers,
    startup,
    train_step,
)

RESULTS = h.ROOT / "benchmarks" / "results"
HEAD = """# Benchmarks

Written by `python -m benchmarks.report` from the files in `benchmarks/results`. Unless a note says otherwise, figures of one table
were printed by the command above it: taken in one run, with the contestants in turns. Figures of different tables were not. Ratios put ours
on top: above 1 is faster in a table of rates, below 1 is faster in a table of times. Everything here is float32, with TF32 off: mixed precision is in docs/decisions/0039-mixed-precision.md. The cpu's kernels were NumPy's (`ANNEAL_CPU=numpy`); those in C are in docs/decisions/0042-compiled-cpu.md.
"""
SECTIONS = (
    (matmul, "Products of matrices"),
    (memory_bound, "What memory bounds"),
    (train_step, "A training step"),
    (eager, "A training step without jit"),
    (nanogpt, "From command to sample"),
    (gpt2, "GPT-2 small"),
    (onnx_peers, "ONNX files"),
    (compile_time, "Compiling a training step"),
    (startup, "Start-up"),
    (memory, "Memory"),
)


def markdown(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Rows of equal keys as a table: figures to the right, columns that say nothing left out.

    >>> print("\\n".join(markdown([{"who": "anneal", "ms": 1.5}])))
    | who | ms |
    |---|---:|
    | anneal | 1.50 |
    """
    heads = (
        [c for c in rows[0] if any(r.get(c, "") not in ("", "-") for r in rows)] if rows else ["nothing was measured"]
    )
    figures = [any(isinstance(r.get(c), (int, float)) for r in rows) for c in heads]
    lines = [heads, *[[h.figure(r.get(c, "")) for c in heads] for r in rows]]
    out = [f"| {' | '.join(line)} |" for line in lines]
    return [out[0], f"|{'|'.join('---:' if f else '---' for f in figures)}|", *out[1:]]


def section(module: Any, result: Mapping[str, Any]) -> list[str]:
    """One run: the command, the machine, the table."""
    about = result["machine"]
    who = about["cpu"] + f", {about['cores']} cores"
    found = [*result.get("contestants", {}).values(), *_entries(result.get("results")), *_entries(result.get("runs"))]
    adapters = [a.get("adapter") or a.get("device") for a in found]
    gpu = next((a for a in adapters if a and not str(a).startswith("cpu")), None)
    driver = next((a["driver"] for a in found if a.get("driver")), None)
    versions = ", ".join(f"{p} {v}" for p, v in {"Python": about["python"], **about["versions"]}.items())
    device = f"{gpu}{f' (driver {driver})' if driver else ''}; " if gpu else ""
    lines = [f"`{result['command']}`", ""] if "command" in result else []
    lines += [f"{device}{who}; {versions}; {about.get('date', '')}.", ""]
    lines += [result["note"], ""] if "note" in result else []
    return [*lines, *markdown(module.rows(result)), ""]


def _entries(results: Any) -> list[Mapping[str, Any]]:
    values = results.values() if isinstance(results, dict) else results if isinstance(results, list) else []
    return [v for v in values if isinstance(v, dict)]


def document(folder: Path) -> str:
    """BENCHMARKS.md for the results in `folder`."""
    texts = [p.read_text(encoding="utf-8") for p in sorted(folder.glob("*.json"))]
    found = [json.loads(line) for text in texts for line in text.splitlines()]
    lines = [HEAD]
    for module, title in SECTIONS:
        name = module.__name__.rpartition(".")[2]
        runs = [r for r in found if r["benchmark"] == name]
        if runs:
            lines += [f"## {title}", "", module.__doc__.partition("\n\n")[0], ""]
            for result in runs:
                lines += section(module, result)
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    (h.ROOT / "BENCHMARKS.md").write_text(document(RESULTS), encoding="utf-8")


if __name__ == "__main__":
    main()
