"""graph, kernels, explain, --version and --help: data on stdout, as text and as JSON."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import anneal
from anneal import codegen, schedule
from anneal.cli._output import narrowed
from anneal.errors import DeviceError
from anneal.uop.ops import ALL
from tests.cli.helpers import run, run_process

MODELS = ["mlp", "conv", "nanogpt"]


@pytest.mark.parametrize("model", MODELS)
def test_graph(capsys: pytest.CaptureFixture[str], model: str) -> None:
    outcome = run(capsys, "graph", model)
    assert outcome.code == 0
    assert outcome.out.startswith("%0 = ")
    assert "more nodes; --limit 0 prints them all" in outcome.out
    total = outcome.out.splitlines()[-1].split()
    report = json.loads(run(capsys, "graph", model, "--json").out)
    assert total == ["total", str(report["uops_forward"]), str(report["uops_backward"])]
    assert len(report["nodes"]) == report["uops_forward"] + report["uops_backward"]
    assert sum(n for by_phase in report["counts"].values() for n in by_phase.values()) == len(report["nodes"])
    for node in report["nodes"]:
        assert node["op"] in ALL
        assert all(s < node["id"] for s in node["src"]), "sources come first"


def test_graph_names_the_line_of_the_example(capsys: pytest.CaptureFixture[str]) -> None:
    report = json.loads(run(capsys, "graph", "mlp", "--json").out)
    assert any(n["source"].startswith("mlp.py:") for n in report["nodes"])


def test_graph_with_symbolic_sizes_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    report = json.loads(run(capsys, "graph", "dynmlp", "--json").out)
    assert any(isinstance(size, str) for n in report["nodes"] for size in n["shape"])


@pytest.mark.parametrize("model", MODELS)
def test_kernels(capsys: pytest.CaptureFixture[str], model: str) -> None:
    forward = json.loads(run(capsys, "kernels", model, "--json").out)["kernels"]
    step = json.loads(run(capsys, "kernels", model, "--step", "--json").out)["kernels"]
    assert 0 < len(forward) < len(step)
    assert {k["phase"] for k in forward} == {"forward"}
    assert {k["phase"] for k in step} == {"forward", "backward", "update"}
    for k in step:
        assert set(k) >= {"name", "reads", "writes", "flops", "bytes", "phase", "wgsl"}
        assert "@compute" in k["wgsl"]
        assert k["writes"]
        assert k["bytes"] > 0
    assert any("matmul" in k["fused"] and len(k["fused"]) > 1 for k in step), "nothing joined a matmul"


def test_kernels_in_text(capsys: pytest.CaptureFixture[str]) -> None:
    text = run(capsys, "kernels", "mlp", "--step", "--all").out
    assert "// ==== kernel 0/" in text
    assert "boundary: from kernel" in text
    assert "boundary: for a later kernel" in text
    assert "(backward)" in text
    assert text.splitlines()[-1].endswith(" bytes")


@pytest.mark.parametrize("lines", [24, 200])
def test_kernels_as_a_table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, lines: int) -> None:
    monkeypatch.setenv("LINES", str(lines))
    monkeypatch.setenv("COLUMNS", "80")
    whole = json.loads(run(capsys, "kernels", "nanogpt", "--step", "--json").out)["kernels"]
    heads, *rows, last = run(capsys, "kernels", "nanogpt", "--step").out.splitlines()
    assert heads.split() == ["kernel", "calls", "flops", "bytes", "phase", "what", "it", "computes", "name"]
    kinds = {(k["phase"], k["name"]): n for n, k in reversed(list(enumerate(whole)))}
    if lines == 24:
        assert rows.pop() == f"... and {len(kinds) - 19} more rows: --all prints everything, --json too"
        assert len(rows) == 19
    else:
        assert len(rows) == len(kinds)
        assert sum(int(row.split()[1]) for row in rows) == len(whole)
    for row in rows:
        number, calls, *_, name = row.split()
        assert kinds[whole[int(number)]["phase"], name] == int(number)
        assert int(calls) == sum(k["name"] == name and k["phase"] == row.split()[4] for k in whole)
        assert whole[int(number)]["label"] in row
    assert last.startswith(f"{len(whole)} kernels, ")


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120, 200])
def test_a_table_is_as_wide_as_its_terminal(width: int) -> None:
    heads = ["n", "flops", "phase", "what it computes", "name"]
    rows = [
        ["0", "1.05M", "forward", "h.0.attn: scaled_dot_product_attention", "r_32_4_64_64_by_32_46d8c4"],
        ["10", "", "", "a", "b"],
    ]
    few, cut = narrowed(heads, rows, width)
    assert max(len("  ".join(row)) for row in [few, *cut]) <= width
    for row, short in zip([heads, *rows], [few, *cut], strict=True):
        assert len(short) == len(few)
        for whole, part in zip(row, short, strict=False):
            assert part == whole or (part.endswith("\u2026") and whole.startswith(part[:-1]))
    assert (few == heads and cut == rows) == (width >= 80 + 12)


def test_kernels_of_the_cpu_device(capsys: pytest.CaptureFixture[str]) -> None:
    report = json.loads(run(capsys, "kernels", "mlp", "--step", "--device", "cpu", "--json").out)
    trained = run(capsys, "train", "mlp", "--steps", "3", "--device", "cpu", "--json").events[-1]
    assert len(report["kernels"]) == trained["kernels"]


def test_kernels_timed(capsys: pytest.CaptureFixture[str], device: str) -> None:
    outcome = run(capsys, "kernels", "mlp", "--time", "--device", device, "--json")
    assert outcome.code == 0
    report = json.loads(outcome.out)
    assert report["device"] == device
    assert report["seconds"] > 0
    assert report["plan_seconds"] > 0
    assert sum(k["share"] for k in report["kernels"]) == pytest.approx(1)
    for k in report["kernels"]:
        assert set(k) >= {"name", "seconds", "gflops", "gbs", "share", "opts", "reads", "writes", "flops", "bytes"}
    assert any(k["opts"] for k in report["kernels"]) == (device == "webgpu")
    assert max(k["gflops"] for k in report["kernels"]) > 0


def test_kernels_timed_in_text(capsys: pytest.CaptureFixture[str]) -> None:
    lines = run(capsys, "kernels", "mlp", "--step", "--time", "--device", "cpu").out.splitlines()
    assert lines[0].split()[:5] == ["share", "us", "quartiles", "calls", "GFLOP/s"]
    for line in lines[1:-1]:  # the median stands between the quartiles
        low, high = map(float, line.split()[2].split("-"))
        assert low <= float(line.split()[1]) <= high
    shares = [float(line.split()[0].rstrip("%")) for line in lines[1:-1]]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(100, abs=0.05 * len(shares))
    assert "distinct:" in lines[-1]
    assert sum(int(line.split()[3]) for line in lines[1:-1]) == int(lines[-1].split()[0])


def test_kernels_timed_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    out = run(capsys, "kernels", "mlp", "--time", "--device", "cpu").out
    assert "GFLOP/s" in out
    assert "\x1b[" in out, "no bold heads"


def test_kernels_of_any_size_are_timed_at_the_sizes_of_the_batch(capsys: pytest.CaptureFixture[str]) -> None:
    assert "GFLOP/s" in run(capsys, "kernels", "dynmlp", "--time", "--step", "--device", "cpu").out


def test_kernels_that_cannot_be_timed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def none(self: object) -> None:
        raise DeviceError("this adapter has no timestamp queries: kernels cannot be timed one by one")

    monkeypatch.setattr("anneal.backend.cpu.executor.CpuBatch.timed", none)
    outcome = run(capsys, "kernels", "mlp", "--time", "--device", "cpu")
    assert outcome.code == 3
    assert outcome.out == ""
    assert "no timestamp queries" in outcome.err


def test_kernels_are_the_same_in_another_process(capsys: pytest.CaptureFixture[str]) -> None:
    here = run(capsys, "kernels", "mlp", "--step", "--json").out
    assert run_process("kernels", "mlp", "--step", "--json", PYTHONHASHSEED="7").out == here


PASSES = [(line.name, p.name) for line in (schedule.PASSES, codegen.PASSES) for p in line]


@pytest.mark.parametrize(("pipeline", "name"), PASSES)
def test_graph_until_a_pass(capsys: pytest.CaptureFixture[str], pipeline: str, name: str) -> None:
    arguments = ["graph", "mlp", "--until", name, *(["--kernel", "1"] if pipeline == "codegen" else [])]
    text = run(capsys, *arguments).out
    report = json.loads(run(capsys, *arguments, "--json").out)
    assert [(p["pipeline"], p["name"]) for p in report["passes"]] == PASSES
    assert (report["info"]["pipeline"], report["info"]["name"]) == (pipeline, name)
    assert report["kernel"] == (1 if pipeline == "codegen" else None)
    assert text.splitlines()[0].startswith(f"// after {name}")
    assert text.splitlines()[0].endswith(f": {report['info']['reason']}")
    assert "\n".join(text.splitlines()[1:]) == "\n".join(p["text"].rstrip("\n") for p in report["parts"])


def test_graph_until_of_the_cpu_device(capsys: pytest.CaptureFixture[str]) -> None:
    kernels = json.loads(run(capsys, "kernels", "mlp", "--step", "--device", "cpu", "--json").out)["kernels"]
    text = run(capsys, "graph", "mlp", "--until", "memory-plan", "--device", "cpu").out
    assert [line.split()[0] for line in text.splitlines()[1:-1]] == [k["name"] for k in kernels]


def test_one_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    whole = json.loads(run(capsys, "kernels", "mlp", "--json").out)["kernels"]
    assert json.loads(run(capsys, "kernels", "mlp", "--kernel", "1", "--json").out)["kernels"] == [whole[1]]
    assert json.loads(run(capsys, "kernels", "mlp", "--wgsl", whole[1]["name"], "--json").out)["kernels"] == [whole[1]]
    text = run(capsys, "kernels", "mlp", "--kernel", "1").out
    assert text.startswith(f"// ==== kernel 1/{len(whole)} {whole[1]['name']} ")
    assert text.splitlines()[-1].startswith("1 kernel, 1 distinct")


def test_lines_of_a_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    [kernel] = json.loads(run(capsys, "kernels", "mlp", "--kernel", "1", "--json").out)["kernels"]
    report = json.loads(run(capsys, "kernels", "mlp", "--kernel", "1", "--lines", "--json").out)
    assert (report["number"], report["name"], report["label"]) == (1, kernel["name"], kernel["label"])
    assert "".join(f"{t['text']}\n" for t in report["lines"]) == kernel["wgsl"]
    [line] = kernel["lines"]
    for t in report["lines"]:
        assert t["lines"] in ([], [line])
        assert set(t["nodes"]) <= set(kernel["nodes"])
    assert any(t["rules"] for t in report["lines"])
    lines = run(capsys, "kernels", "mlp", "--kernel", "1", "--lines").out.splitlines()
    numbered = [x[5:] for x in lines if not x.lstrip().startswith("//")]
    assert numbered == [t["text"] for t in report["lines"]]
    assert any(x.startswith("    //   by ") and "anneal/uop/fold.upat:" in x for x in lines)
    assert any("mlp.py:" in x and "second" in x for x in lines)


def test_the_way_back_from_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    whole = json.loads(run(capsys, "kernels", "mlp", "--json").out)["kernels"]
    line = whole[0]["lines"][0]["line"]
    here = [k for k in whole if line in [x["line"] for x in k["lines"]]]
    assert 0 < len(here) < len(whole)
    assert json.loads(run(capsys, "kernels", "mlp", "--line", f"mlp.py:{line}", "--json").out)["kernels"] == here
    for more in ((), ("--kernel", "1"), ("--kernel", "1", "--lines"), ("--json",)):
        wrong = run(capsys, "kernels", "mlp", "--line", "mlp.py:1", *more)
        assert (wrong.code, wrong.out) == (2, "")
        assert re.search(r"comes from line 1 of mlp\.py; lines are mlp\.py:\d+", wrong.err), wrong.err
    of_line = run(capsys, "kernels", "mlp", "--kernel", "1", "--lines", "--line", f"mlp.py:{line}").out
    assert "// ==== kernel 1 " in of_line
    assert "@compute" not in of_line, "that comes from no line"
    assert "fma(" in of_line


def test_rules_of_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    forward, step = (
        json.loads(run(capsys, "explain", "--model", "mlp", *more, "--json").out)["rules"] for more in ((), ("--step",))
    )
    assert sum(r["count"] for r in forward) < sum(r["count"] for r in step)
    assert "gradient" not in {r["table"] for r in forward}
    assert "gradient" in {r["table"] for r in step}
    for r in step:
        assert sum(r["passes"].values()) == r["count"]
        assert r["place"].partition(":")[0].endswith(".upat")
    assert {"first", "second", "last"} <= {path for r in step for path in r["modules"]}
    lines = run(capsys, "explain", "--model", "mlp", "--limit", "2").out.splitlines()
    assert lines[0].split()[0] == f"{forward[0]['count']:,}"
    assert lines[-2] == f"... {len(forward) - 2} more rules; --limit 0 prints them all"
    assert lines[-1] == f"{len(forward)} rules fired {sum(r['count'] for r in forward):,} times"
    assert any(x.startswith("         for mlp.py:") for x in lines)


@pytest.mark.parametrize(("op", "parts"), [
    ("mul", ["MUL", "x * 1 -> x", "a * b -> g * b, g * a", "anneal/transforms/gradient.upat:", "anneal/uop/fold.upat:"]),
    ("GATHER", ["gather[axis](x, i) ->"]),
    ("gelu", ["Tensor.gelu builds:", "ERF", "erf(x) -> g * exp"]),
    ("softmax", ["EXP", "exp(x) -> g * y"]),
    ("matmul", ["REDUCE_AXIS", "MUL"]),
])  # fmt: skip
def test_explain(capsys: pytest.CaptureFixture[str], op: str, parts: list[str]) -> None:
    outcome = run(capsys, "explain", op)
    assert outcome.code == 0
    for part in parts:
        assert part in outcome.out
    report = json.loads(run(capsys, "explain", op, "--json").out)
    assert any(report["ops"].values())


def test_every_op_of_a_meaning_of_its_own_says_it(capsys: pytest.CaptureFixture[str]) -> None:
    meanings = json.loads(run(capsys, "explain", "--json").out)["ops"]
    source = (Path(anneal.__file__).parent / "uop" / "ops.py").read_text(encoding="utf-8")
    for op, meaning in meanings.items():
        after = re.split(rf"^    {op} = ", source, flags=re.MULTILINE)[1]
        row = re.split(r"^    [A-Z]\w* = |^\n", after, flags=re.MULTILINE)[0]
        said = " ".join([line.partition("# ")[2] for line in row.splitlines() if "# " in line and "# fmt" not in line])
        assert meaning == (said or "elementwise"), op


def test_explain_shows_what_a_method_is_made_of(capsys: pytest.CaptureFixture[str]) -> None:
    text = run(capsys, "explain", "conv2d").out
    assert text.startswith("Tensor.conv2d builds: CAST, MUL, REDUCE_AXIS")
    report = json.loads(run(capsys, "explain", "conv2d", "--json").out)
    assert report["example"].startswith("conv2d(Tensor.arange(9)")
    assert f"  {report['example']}   is made of\n    %0 = " in text
    assert {n["op"] for n in report["nodes"]} >= {"MUL", "REDUCE_AXIS"}


def test_explain_lists_the_ops(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = run(capsys, "explain")
    assert [line.split()[0] for line in outcome.out.partition("\n\n")[0].splitlines()] == list(ALL)
    report = json.loads(run(capsys, "explain", "--json").out)
    assert list(report["ops"]) == list(ALL)
    assert "conv2d" in report["methods"]


@pytest.mark.parametrize("op", sorted(ALL))
def test_every_op_has_an_explanation(capsys: pytest.CaptureFixture[str], op: str) -> None:
    outcome = run(capsys, "explain", op)
    assert outcome.code == 0
    assert outcome.out.startswith(f"{op}: ")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = run(capsys, "--version")
    assert outcome.code == 0
    assert outcome.out.startswith(f"anneal {anneal.__version__} (Python ")


def test_help_is_instant_and_imports_no_array_library() -> None:
    code = (
        "import sys\n"
        "from anneal.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'numpy', 'wgpu', 'rich', 'anneal.tensor'} & set(sys.modules)))"
    )
    times = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert done.stdout.splitlines()[-1] == "[]"
    assert min(times) < 0.4, "processor time, so that a busy machine does not fail it"


def test_importing_tensor_opens_nothing() -> None:
    code = "import sys, anneal.tensor; print(sorted({'wgpu', 'rich', 'typer', 'torch', 'jax'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_closed_pipe_is_no_error() -> None:
    command = f"{sys.executable} -c 'from anneal.cli import main; main()' kernels nanogpt --step | head -n 2"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stderr == ""
