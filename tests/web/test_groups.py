"""The boxes of a graph are calls: what the studio draws has the arrows of the model, and no others."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import anneal as an
from anneal import nn
from anneal.inspect import graph_nodes, plain
from anneal.inspect.graphs import traced_model
from anneal.schedule import graph
from anneal.uop import UOp

APP = Path(__file__).resolve().parents[2] / "anneal/web/app"
SCRIPT = """
import { build } from "esbuild";
import { readFileSync } from "node:fs";
const made = await build({ entryPoints: ["src/groups.ts"], format: "esm", write: false, logLevel: "error" });
const groups = await import("data:text/javascript," + encodeURIComponent(made.outputFiles[0].text));
const { nodes, open } = JSON.parse(readFileSync(0, "utf8"));
const { paths, leaf } = groups.grouped(nodes);
const items = nodes.filter((n) => !["CONST", "SINK"].includes(n.op)).map((n) => ({
  id: n.id, label: n.op, detail: "", src: n.src, phase: n.phase, path: paths[n.id], changed: false, leaf: leaf[n.id],
}));
const { boxes, edges } = groups.visible(items, new Set(open));
const forward = new Set(boxes.filter((b) => b.phase === "forward").map((b) => b.key));
console.log(JSON.stringify(edges.filter((e) => forward.has(e.from) && forward.has(e.to)).map((e) => [e.from, e.to])));
"""


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(8, 8) for _ in range(4))

    def forward(self, x: an.Tensor) -> an.Tensor:
        q, k, v = self.q(x), self.k(x), self.v(x)
        return self.o((q @ k.mT).softmax(-1) @ v)


class Net(nn.Module):
    """One module that is called twice, a function that is called twice, and an attention."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.attention, self.block = nn.Linear(4, 8), Attention(), nn.Linear(8, 8)

    def forward(self, x: an.Tensor) -> an.Tensor:
        x = an.relu(self.first(x))
        x = self.attention(x)
        x = self.block(x)
        return self.block(an.relu(x))


def arrows(outputs: list[UOp], *opened: str) -> set[tuple[str, str]]:
    """The arrows between boxes of the forward pass, with the groups `opened` open."""
    node = shutil.which("node")
    if node is None or not (APP / "node_modules" / "esbuild").is_dir():
        pytest.skip("needs node and `npm ci` in anneal/web/app, as .ci/run does")
    told = json.dumps({"nodes": graph_nodes(graph(outputs)), "open": opened}, default=plain)
    done = subprocess.run(
        [node, "--input-type=module", "-e", SCRIPT], cwd=APP, input=told, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return {(a, b) for a, b in json.loads(done.stdout)}


def test_each_call_of_a_function_is_a_box() -> None:
    assert arrows(traced_model("mlp").outputs) == {
        ("first", "relu"), ("relu", "second"), ("second", "relu (2)"), ("relu (2)", "last"), ("last", "cross_entropy"),
    }  # fmt: skip


def test_each_call_of_a_module_is_a_box() -> None:
    loss = Net()(an.zeros(2, 5, 4).realize()).sum()
    found = arrows([loss.uop])
    assert found == {
        ("first", "relu"), ("relu", "attention"), ("attention", "block"), ("block", "relu (2)"),
        ("relu (2)", "block (2)"), ("block (2)", "sum"),
    }  # fmt: skip


def test_one_input_of_several_modules_is_nobodys() -> None:
    loss = Net()(an.zeros(2, 5, 4).realize()).sum()
    found = arrows([loss.uop], "attention")
    parts = {"attention/q", "attention/k", "attention/v"}
    assert {b for a, b in found if a == "relu"} == parts
    assert not {(a, b) for a, b in found if a in parts and b in parts}


def test_blocks_that_share_a_constant_are_not_tied_by_it() -> None:
    found = arrows(traced_model("nanogpt").outputs)
    blocks = [f"h.{n}" for n in range(4)]
    between = {(a, b) for a, b in found if a in blocks and b in blocks}
    assert between == set(zip(blocks, blocks[1:]))


def test_both_products_of_a_gradient_are_one_box() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    loss = model(an.zeros(2, 4).realize()).sum()
    loss.backward()
    gradients = [p.grad.uop for p in model.parameters() if p.grad is not None]
    names = {box for pair in arrows([loss.uop, *gradients]) for box in pair}
    assert not [name for name in names if "(2)" in name]
