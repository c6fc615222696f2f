"""`check`: what it takes, what it says, what it leaves alone; and the file that shows a difference again."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anneal
from anneal import nn
from anneal.errors import DataError, UserError
from anneal.inspect import CheckLimits, Difference, check, replayed, repro_of, under_check
from anneal.tensor import Tensor, Variable, dtypes, functional as F, jit, realize
from tests.cli.helpers import run
from tests.inspect.checking import planted
from tests.inspect.models import Net


def values(*shape: int, seed: int = 0, device: str | None = None) -> Tensor:
    return Tensor(np.random.default_rng(seed).normal(size=shape).astype(np.float32), device=device)


# -- the function ----------------------------------------------------------------------------------------------------


def test_a_function_with_captured_tensors(device: str) -> None:
    w = values(16, 8)
    report = anneal.check(lambda x: ((x @ w).relu().sum(0), (x * 2).max()), values(4, 16, seed=1))
    assert report.ok, str(report)
    assert report.tensor_elements == report.elements == report.compared >= 9
    assert report.first is None
    assert report.device == device


def test_a_training_step(device: str) -> None:
    model = Net()
    optimiser = nn.AdamW(model.parameters(), lr=1e-3)
    x, y = values(12, 16), Tensor(np.arange(12, dtype=np.int32) % 4)

    @jit
    def step(x: Tensor, y: Tensor) -> Tensor:
        loss = F.cross_entropy(model(x), y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        return loss

    before = model.fc.weight.numpy()
    report = check(step, x, y)
    assert report.ok, str(report)
    assert report.tensor_elements > 0.9 * report.elements
    assert (model.fc.weight.numpy() != before).any(), "the step is done, too"
    assert not step.captures, "nothing is captured while a check looks"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3fn", "float64", "int8", "int64", "uint8", "bool"])
def test_every_dtype(dtype: str, device: str) -> None:
    if device == "webgpu" and dtype in ("float64", "int64"):
        pytest.skip("the cpu's")
    x = values(8, 12).cast(getattr(dtypes, dtype + "_" if dtype == "bool" else dtype))
    y = values(8, 12, seed=1).cast(x.dtype)
    report = check(lambda: (x * y, (x + y).sum(1), x.max(1), (x * y).sum(0), x.cast(dtypes.float32).exp()))
    assert report.first is None, str(report)  # exp(255) overflows, which is no difference
    assert report.tensor_elements == report.elements


def test_what_is_hard_to_tell(device: str) -> None:
    """Sorts, ties, choices, indices, sizes that are known at run time, random numbers, integers that wrap."""
    x = values(9, 17)
    n = Variable("n", 1, 9).bind(5)
    ids = Tensor(np.array([3, 0, 8, 3], np.int32))

    def f() -> Any:
        yield x.sort(1)
        yield x.argmax(1), (x.round() == x).sum(), x.round().argmin(0)
        yield (x > x.mean()).where(x.exp(), x / 0.0)
        yield x[ids], F.one_hot(ids, 9), x.cumsum(1)
        yield x[:n].exp().sum(0)
        yield Tensor.randn(5, 5), (ids * 715827883) % 7
        yield Tensor.cat([x, x * 2], dim=1), x.pad(((1, 0), (0, 2))), x.flip(1)

    report = check(lambda: list(f()))
    assert report.ok, str(report)
    assert report.unjudged < 0.2 * report.elements


def test_what_is_too_much_work_is_drawn_and_said() -> None:
    x = values(64, 64, device="cpu")
    report = check(lambda: x @ x, limits=CheckLimits(kernel=1 << 14, tensor=1 << 8))
    [kernel] = report.kernels
    assert report.ok
    assert 64 <= kernel.compared < kernel.elements
    assert 64 <= kernel.tensor_elements < kernel.elements
    assert "were drawn" in kernel.note
    assert "were drawn to be compared with the graph as written" in kernel.note
    assert report.messages


def test_elements_that_are_drawn_are_judged_as_all_are(device: str) -> None:
    """Every program with all of its values taken element by element, and a wrong rule by that too."""
    from tests.fuzz.generate import program
    from tests.fuzz.programs import build

    for seed in range(1, 21):
        with under_check(CheckLimits(kernel=1 << 16, tensor=0)) as state:
            realize(list(build(program(seed), device).values()))
        assert state.report.ok, f"program {seed}: {state.report}"
        assert state.report.tensor_elements > 0
    [bug] = [b for b in planted.BUGS if b.name == "an index one too high"]
    with planted.compiled_afresh(bug):
        found = check(bug.program, *planted.inputs(bug.device), limits=CheckLimits(tensor=0)).first
    assert isinstance(found, Difference)
    assert found.against == "tensor graph"


def test_a_plan_that_runs_again_is_checked_twice() -> None:
    x = values(4, 4, device="cpu")
    with under_check(times=2) as state:
        for _ in range(5):
            (x * 2).numpy()
    assert state.report.launches == 5
    assert len(state.report.kernels) == 2
    assert "the first 2 times" in str(state.report)


def test_mistakes_are_told() -> None:
    with pytest.raises(UserError, match="check takes a function"):
        check(values(2))  # type: ignore[arg-type]
    with pytest.raises(UserError, match="computed nothing"):
        check(lambda: 3)
    with pytest.raises(UserError, match="one float tensor of one element"):
        check(lambda: values(2, device="cpu") * 2, gradients=True)
    with pytest.raises(UserError, match="requires a gradient"):
        check(lambda: values(2, device="cpu").sum(), gradients=True)


def test_leaves_that_are_not_computed_yet() -> None:
    w = Tensor.randn(3, requires_grad=True, device="cpu")
    for f in (lambda: (w * w).sum(), lambda: Tensor.randn(3, requires_grad=True, device="cpu").exp().sum()):
        report = check(f, gradients=True)
        assert report.ok, str(report)
        assert len(report.gradients) == 1


def test_kinks_are_no_wrong_gradients() -> None:
    x = Tensor(np.array([0.0, -1.0, 2.0, 0.0], np.float32), requires_grad=True, device="cpu")
    report = check(lambda: (x.relu() + x.abs() + x.maximum(-x)).sum(), gradients=True)
    assert report.ok, str(report)


# -- the file --------------------------------------------------------------------------------------------------------


def found(bug: planted.Bug) -> bytes:
    with planted.compiled_afresh(bug), under_check() as state:
        x, w = planted.inputs(bug.device)
        for t in [y if isinstance(y, Tensor) else y[0] for y in [bug.program(x, w)]]:
            t.numpy()
    file = io.BytesIO()
    repro_of(state.found[0], file)
    return file.getvalue()


def test_a_file_shows_wrong_text_again(webgpu: str) -> None:
    [bug] = [b for b in planted.BUGS if b.name == "a thread in the place of its neighbour"]
    raw = found(bug)
    again = replayed(raw, "f", webgpu)
    assert again.recorded.startswith("wrong: output 0")
    assert again.fresh == "right"
    assert not again.ok
    other = replayed(raw, "f", "cpu")
    assert "runs no WGSL" in other.recorded
    assert other.fresh == "right"


def test_a_file_that_is_no_such_file() -> None:
    [bug] = [b for b in planted.BUGS if b.name == "an op of the NumPy device"]
    raw = found(bug)
    assert replayed(raw, "f", "cpu").fresh == "right"
    for bad in (b"", b"nothing", raw[: len(raw) // 2]):
        with pytest.raises(DataError, match="is no file of `anneal check --repro`"):
            replayed(bad, "f", "cpu")
    arrays = dict(np.load(io.BytesIO(raw)))
    for name, change in {
        "memory1": lambda a: a[:-4],
        "index0": lambda a: a + 10**9,
        "value0": lambda a: a[:-1],
        "check": lambda a: np.frombuffer(re.sub(rb"anneal check 1", b"anneal check 9", a.tobytes()), np.uint8),
    }.items():
        file = io.BytesIO()
        np.savez(file, **{**arrays, name: change(arrays[name])})
        with pytest.raises(DataError, match="is no file of"):
            replayed(file.getvalue(), "f", "cpu")


# -- the command -----------------------------------------------------------------------------------------------------

SCRIPT = """
import sys
from anneal.tensor import Tensor

x = Tensor([[1.0, 2.0], [3.0, 4.0]])
for _ in range(3):
    x = (x @ x).tanh()
    print(x.sum().item())
print(sys.argv[1:])
"""


def test_the_command_checks_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "check", "mlp", "--batch", "8", "--device", "cpu", "--step", "--gradients", "--json")
    assert done.code == 0
    report = json.loads(done.out)
    assert report["ok"]
    assert len(report["gradients"]) == 6
    assert report["tensor_elements"] > 0.8 * report["elements"]
    assert {"name", "label", "opts", "worst", "lines"} <= set(report["kernels"][0])


def test_the_command_checks_a_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = run(capsys, "check", str(script), "--device", "cpu", "--", "--flag")
    assert done.code == 0, done.err
    assert "['--flag']" in done.out
    assert "nothing differs" in done.out
    done = run(capsys, "check", str(script), "--device", "cpu", "--json")
    assert json.loads(done.out)["ok"]
    assert "[]" in done.err


def test_the_command_names_what_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script, repro = tmp_path / "script.py", tmp_path / "wrong.npz"
    script.write_text(SCRIPT)
    with planted.wrong_numpy():
        done = run(capsys, "check", str(script), "--device", "cpu", "--repro", str(repro))
        assert done.code == 1
        assert "script.py:7" in done.out
        [last] = done.err.strip().splitlines()[-1:]
        assert re.fullmatch(r"\S+ \S*script\.py: TANH differs in kernel \d+ \w+", last), last
        assert "the program that device cpu made of the kernel is wrong" in done.out
        again = run(capsys, "check", "--replay", str(repro), "--device", "cpu", "--json")
        assert again.code == 1
        assert json.loads(again.out)["fresh"].startswith("wrong: output 0")
    again = run(capsys, "check", "--replay", str(repro), "--device", "cpu")
    assert again.code == 0
    assert "as this version makes it: right" in again.out


def test_a_model_of_nan_is_not_ok(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "odd.py"
    script.write_text(
        "from anneal.tensor import Tensor\nx = Tensor([1.0, 2.0]) - 5\nprint(x.log().softmax(-1).tolist())\n"
    )
    done = run(capsys, "check", str(script), "--device", "cpu")
    assert done.code == 1
    assert "nothing differs" not in done.out
    [last] = done.err.strip().splitlines()[-1:]
    assert re.search(r"odd\.py: the first nan is LOG of -4 \(odd\.py:3\) in kernel 0 \w+, from v0\[0\] = 1$", last), (
        last
    )
    done = run(capsys, "check", str(script), "--device", "cpu", "--json")
    assert done.code == 1
    report = json.loads(done.out)
    assert not report["ok"]
    assert "LOG of -4" in report["reason"]
    assert report["not_finite"]["result"]
    assert all(k["ok"] for k in report["kernels"])


TRAINED = """
from anneal.tensor import Tensor
from anneal import manual_seed, optim

manual_seed(1)
w = Tensor([[0.5, -1.0], [0.25, 2.0]], requires_grad=True)
b = Tensor.randn(2, requires_grad=True)
step = optim.SGD([w, b], lr=0.1)
for _ in range(4):
    step.zero_grad()
    loss = ((Tensor([[1.0, 2.0]]) @ w + b).tanh() ** 2).mean()
    loss.backward()
    step.step()
    print(loss.item())
"""


def test_gradients_of_a_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "trained.py"
    script.write_text(TRAINED)
    arguments = ("check", str(script), "--device", "cpu", "--gradients")
    plain = run(capsys, "check", str(script), "--device", "cpu")
    done = run(capsys, *arguments)
    assert done.code == 0, done.err
    assert "4 gradients compared with differences" in done.out
    assert re.findall(r"^0\.\d+$", plain.out, re.M) == re.findall(r"^0\.\d+$", done.out, re.M), "it trains the same"
    with planted.rule("gradient.upat", "tanh(x) -> g * (1 - y * y)", "tanh(x) -> g * (1 - y)")():
        done = run(capsys, *arguments)
    assert done.code == 1
    assert "rule: tanh(x) -> g * (1 - y)" in done.out
    assert "the gradient of TANH" in done.err.splitlines()[-1]
    script.write_text(SCRIPT)
    done = run(capsys, *arguments)
    assert done.code == 2
    assert "none of this script could be checked" in done.err


def test_mistakes_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("x = 1\nraise ValueError('no')\n")
    empty = tmp_path / "empty.py"
    empty.write_text("")
    for arguments, code, said in (
        (["check"], 2, "check takes a MODEL"),
        (["check", "nosuch"], 2, "there is no model called 'nosuch'"),
        (["check", "mlp", "more"], 2, "only a script takes arguments"),
        (["check", "missing.py"], 4, "there is no such file"),
        (["check", str(broken)], 2, "failed at line 2: ValueError: no"),
        (["check", str(empty)], 2, "computed nothing"),
        (["check", str(empty), "--step"], 2, "a script says itself what it runs"),
        (["check", "mlp", "--input", "x=random"], 2, "are for ONNX files"),
        (["check", "--replay", str(tmp_path / "none")], 4, "cannot be read"),
        (["check", "--replay", str(broken)], 4, "is no file of `anneal check --repro`"),
    ):
        done = run(capsys, *arguments)
        assert done.code == code, (arguments, done.err)
        assert said in done.err, (arguments, done.err)
        assert "Traceback" not in done.err
