"""A user's mistake is one message on stderr, the documented exit code, and no traceback."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.cli.helpers import run, run_process

MISTAKES = [
    (("trian", "mlp"), "Did you mean 'train'"),
    (("train",), "Missing argument"),
    (
        ("train", "nanogtp"),
        "there is no model called 'nanogtp'. Did you mean 'nanogpt'? There is: mlp, dynmlp, conv, nanogpt, ",
    ),
    (("train", "xyz"), "there is no model called 'xyz'. There is: mlp, dynmlp, conv, nanogpt, "),
    (("train", "mlp", "--stps", "4"), "--steps"),
    (("train", "mlp", "--steps", "0"), "--steps"),
    (("train", "mlp", "--steps", "many"), "--steps"),
    (("train", "mlp", "--batch", "-1"), "--batch"),
    (("train", "mlp", "--lr", "nan"), "--lr nan is not a learning rate"),
    (("train", "mlp", "--lr", "-1"), "--lr -1 is not a learning rate"),
    (("train", "mlp", "--device", "cuda"), "--device"),
    (("train", "mlp", "--device", "cpu", "--adapter", "nvidia"), "--adapter chooses a WebGPU adapter"),
    (("graph", "mpl"), "Did you mean 'mlp'"),
    (("kernels", "convs"), "Did you mean 'conv'"),
    (("explain", "mull"), "Did you mean 'MUL'"),
    (("explain", "--step"), "--step, --batch and --device belong to --model"),
    (("explain", "mul", "--model", "mlp"), "explain takes an OP, or --model MODEL"),
    (("explain", "mul", "--step"), "--step, --batch and --device belong to --model"),
    (("explain", "--model", "mpl"), "Did you mean 'mlp'"),
    (("graph", "mpl", "--until", "legalise"), "Did you mean 'mlp'"),
    (("graph", "mlp", "--until", "kernel-group"), "Did you mean 'kernel-groups'"),
    (("graph", "mlp", "--until", "x"), "There is: early-rewrites, "),
    (("graph", "mlp", "--kernel", "1"), "--kernel belongs to --until PASS"),
    (("graph", "mlp", "--until", "legalise"), "add --kernel N"),
    (("graph", "mlp", "--until", "legalise", "--kernel", "99"), "there is no kernel 99: the plan has 14, from 0 to 13"),
    (("kernels", "mlp", "--kernel", "99"), "there is no kernel 99: the plan has 5, from 0 to 4"),
    (("kernels", "mlp", "--wgsl", "r_"), "there is no kernel 'r_': several are: r_"),
    (("kernels", "mlp", "--wgsl", "-1"), "there is no kernel '-1': the plan has r_"),
    (("kernels", "mlp", "--lines"), "--lines shows one kernel: add --wgsl N"),
    (("kernels", "mlp", "--line", "mlp.py"), "--line takes FILE:LINE, such as model.py:12, not 'mlp.py'"),
    (("kernels", "mlp", "--time", "--kernel", "1"), "--time runs all kernels; leave --wgsl, --all and --line out"),
]


@pytest.mark.parametrize(("arguments", "text"), MISTAKES, ids=lambda x: " ".join(x) if isinstance(x, tuple) else "")
def test_a_mistake_in_the_command(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], text: str) -> None:
    outcome = run(capsys, *arguments)
    assert outcome.code == 2
    assert text in outcome.err
    assert "Traceback" not in outcome.err
    assert outcome.out == ""


def test_an_unwritable_place_is_found_before_training(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for path in (tmp_path / "no" / "model.safetensors", tmp_path):
        outcome = run(capsys, "train", "mlp", "--save", str(path))
        assert outcome.code == 4
        assert str(tmp_path) in outcome.err
        assert "Traceback" not in outcome.err


FOLDERS = [
    "train mlp --steps 1 --save {}", "train mlp --steps 1 --start {}", "train vit --steps 1 --picture {}",
    "kernels mlp --time --trace {}", "record {}", "check {}.py", "check mlp --repro {}", "check --replay {}",
    "run llama2c {}", "run text nanogpt --weights {}", "run resnet9 --count 2 --picture {}", "run resnet9 --weights {}",
    "onnx info {}", "onnx run {}", "onnx check {}", "onnx export mlp -o {}", "web --snapshot /k?model=mlp -o {}",
]  # fmt: skip


@pytest.mark.parametrize("command", FOLDERS)
def test_a_folder_in_place_of_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str) -> None:
    """It is called one, before anything takes long, and no file of another command's is proposed."""
    (tmp_path / "x.py").mkdir()
    given = tmp_path / ("x" if "{}.py" in command else "x.py")
    outcome = run(capsys, *command.format(given).split())
    assert outcome.code == 4, outcome.err
    (line,) = outcome.err.splitlines()
    assert line.startswith("error: ")
    assert "it is a folder, not a file" in line
    assert "safetensors" not in line
    assert outcome.out == ""
    assert not [*(tmp_path / "x.py").iterdir()]


def test_kernels_are_planned_for_an_adapter_that_is_there(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from anneal.backend import webgpu

    facts = {"device": "Some GPU", "backend_type": "Vulkan", "adapter_type": "DiscreteGPU", "vendor": "Somebody"}
    monkeypatch.setattr(webgpu, "enumerate_adapters", lambda: [SimpleNamespace(info=facts)])
    assert run(capsys, "kernels", "mlp", "--adapter", "some").code == 0
    wrong = run(capsys, "kernels", "mlp", "--adapter", "nope")
    assert (wrong.code, wrong.out) == (3, "")
    assert "no WebGPU adapter is called 'nope', or has that number; there are: Some GPU (Vulkan)" in wrong.err


def test_an_adapter_that_is_not_there() -> None:
    outcome = run_process("train", "mlp", "--steps", "1", "--adapter", "no such adapter")
    assert outcome.code == 3
    assert "Traceback" not in outcome.err


def test_a_wrong_environment_variable() -> None:
    outcome = run_process("train", "mlp", "--steps", "1", ANNEAL_DEVICE="gpu")
    assert outcome.code == 2
    assert outcome.err.strip() == "error: ANNEAL_DEVICE='gpu' is not a valid value; use one of: auto, cpu, webgpu"


def test_a_missing_data_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("anneal.assets._files.__file__", str(tmp_path / "_bundled.py"))
    outcome = run(capsys, "train", "nanogpt", "--steps", "1", "--device", "cpu")
    assert outcome.code == 4
    assert "missing from the installed package" in outcome.err
