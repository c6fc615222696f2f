"""Ticks of the studio's charts: at 1, 2 or 5 of a power, each text another, as many decimals as they need."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

APP = Path(__file__).resolve().parents[2] / "anneal/web/app"
SCRIPT = """
import { build } from "esbuild";
import { readFileSync } from "node:fs";
const made = await build({ entryPoints: ["src/ticks.ts"], format: "esm", write: false, logLevel: "error" });
const { STEPS, WHOLE, BYTES, labels, byteLabels } = await import("data:text/javascript," + encodeURIComponent(made.outputFiles[0].text));
const asked = JSON.parse(readFileSync(0, "utf8"));
console.log(JSON.stringify({ STEPS, WHOLE, BYTES, said: asked.map(([f, t, by]) => (f === "bytes" ? byteLabels : labels)(t, by)) }));
"""
MIB = 1 << 20
CASES: list[tuple[str, list[float], float, list[str]]] = [
    ("", [0.1 + 0.2, 0.4, 0.5], 0.1, ["0.3", "0.4", "0.5"]),
    ("", [-0.2, -0.1, -1e-17, 0.1], 0.1, ["-0.2", "-0.1", "0.0", "0.1"]),
    ("", [0.00495, 0.005, 0.00505], 5e-5, ["0.00495", "0.00500", "0.00505"]),  # a learning rate that stays
    ("", [0, 1e-4, 2e-4, 3.0000000000000003e-4], 1e-4, ["0", "1e-4", "2e-4", "3e-4"]),
    ("", [1000, 1500, 2000], 500, ["1,000", "1,500", "2,000"]),
    ("", [0, 2e7, 4e7], 2e7, ["0", "2e+7", "4e+7"]),
    ("", [0], 1, ["0"]),
    ("bytes", [0, 50 * MIB, 100 * MIB], 50 * MIB, ["0", "50", "100 MiB"]),
    ("bytes", [0, 500 << 10, 1000 << 10, 1500 << 10], 500 << 10, ["0", "500", "1,000", "1,500 KiB"]),
    ("bytes", [0, 1, 2], 1, ["0", "1", "2 B"]),
]


def test_ticks_are_round_and_their_texts_differ() -> None:
    node = shutil.which("node")
    if node is None or not (APP / "node_modules" / "esbuild").is_dir():
        pytest.skip("needs node and `npm ci` in anneal/web/app, as .ci/run does")
    done = subprocess.run(
        [node, "--input-type=module", "-e", SCRIPT], cwd=APP, input=json.dumps([c[:3] for c in CASES]),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["said"] == [c[3] for c in CASES]
    assert {f"{s:e}"[:8] for s in found["STEPS"]} == {"1.000000", "2.000000", "5.000000"}
    assert found["WHOLE"] == [s for s in found["STEPS"] if s >= 1]
    assert all(s == int(s) for s in found["WHOLE"])
    for steps in (found["STEPS"], found["BYTES"]):
        assert steps == sorted(set(steps))
    assert {1, 2, 5, 500 << 10, 1 << 20, 200 << 30} <= set(found["BYTES"])
