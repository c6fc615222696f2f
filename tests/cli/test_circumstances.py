"""Every command in every circumstance: the exit code that README.md gives, and no traceback.

A row is a command and what surrounds it: where its output goes, what the environment lacks, where it runs, when it is
stopped; or a flag that takes a place to write to or to read from, and what is there.
"""

from __future__ import annotations

import importlib.util
import os
import random
import re
import signal
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anneal.tensor import io
from tests.cli.helpers import run
from tests.cli.test_gpt2 import make
from tests.examples.test_llama2c import write as write_llama
from tests.tiers import thinned

ANNEAL = [sys.executable, "-c", "from anneal.cli import main; main()"]
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Command:
    """`{x}` in the arguments is place x. `speaks`: it has messages for stderr."""

    arguments: str
    speaks: bool = False
    codes: tuple[int, ...] = (0,)


COMMANDS = {
    "help": Command("--help"),
    "version": Command("--version"),
    "doctor": Command("doctor", speaks=True, codes=(0, 3)),
    "doctor json": Command("doctor --json", codes=(0, 3)),
    "train": Command("train mlp --steps 3", speaks=True),
    "train json": Command("train mlp --steps 3 --json"),
    "train save": Command("train mlp --steps 3 --json --save {out}/w.safetensors", speaks=True),
    "train gpt2": Command("train gpt2 --steps 2 --batch 2 --json --model-dir {gpt2} --checkpoint {out}/c"),
    "graph": Command("graph mlp"),
    "graph until": Command("graph mlp --until linearise --kernel 1"),
    "kernels": Command("kernels mlp"),
    "kernels lines": Command("kernels mlp --kernel 1 --lines"),
    "kernels time": Command("kernels mlp --time", speaks=True),
    "record": Command("record {script} -o {out}/r.zip", speaks=True),
    "check": Command("check mlp --batch 8"),
    "explain": Command("explain mul"),
    "explain model": Command("explain --model mlp --limit 3"),
    "gpt2 sample": Command("gpt2 sample Hello --max-tokens 3 --model-dir {gpt2}", speaks=True),
    "llama2c": Command("run llama2c {llama}/model.bin ab", speaks=True),
    "resnet9": Command("run resnet9 --count 2 --weights {small}", speaks=True),
    "resnet9 json": Command("run resnet9 --count 2 --weights {small} --json"),
    "export": Command("export mlp -o {out}/page", speaks=True),
    "export json": Command("export mlp -o {out}/page.html --single-file --json"),
    "fit": Command("fit mlp --for browser"),
    "cache where": Command("cache where"),
    "cache ls": Command("cache ls"),
    "cache prune": Command("cache prune --older-than 7d"),
}
if importlib.util.find_spec("onnx"):
    COMMANDS["onnx info"] = Command("onnx info {onnx}")
    COMMANDS["onnx run"] = Command("onnx run {onnx} --json")
    COMMANDS["onnx check"] = Command("onnx check {onnx}")
    COMMANDS["onnx export"] = Command("onnx export mlp -o {out}/m.onnx")

CIRCUMSTANCES = (
    "stdout full", "stdout closed", "stderr closed", "stderr full", "both closed", "all closed", "reader left", "Ctrl-C",
    "60 columns", "no HOME", "nowhere to write", "C locale",
)  # fmt: skip


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return made(tmp_path_factory.mktemp("places"))


def made(place: Path) -> dict[str, Path]:
    """What the commands read, and an empty folder for the cache."""
    (place / "llama").mkdir()
    write_llama(place / "llama")
    rng = np.random.default_rng(0)
    w = 2
    layers = {"prep": (3, w), "layer1": (w, 2 * w), "residual1.0": (2 * w, 2 * w), "residual1.1": (2 * w, 2 * w),
              "layer2": (2 * w, 4 * w), "layer3": (4 * w, 8 * w), "residual3.0": (8 * w, 8 * w), "residual3.1": (8 * w, 8 * w)}  # fmt: skip
    small: dict[str, Any] = {"classify.weight": rng.normal(size=(10, 8 * w)).astype(np.float32)}
    for name, (channels, out) in layers.items():
        small[f"{name}.0.weight"] = rng.normal(size=(out, channels, 3, 3)).astype(np.float32)
        for part in ("weight", "bias", "running_mean", "running_var"):
            small[f"{name}.1.{part}"] = np.ones(out, np.float32)
        small[f"{name}.1.num_batches_tracked"] = np.array(1, np.int32)
    io.safe_save(small, place / "small")
    (place / "script.py").write_text("from anneal.tensor import Tensor\nprint(Tensor([1.0, 2.0]).sum().item())\n")
    if importlib.util.find_spec("onnx"):
        from tests.onnx.test_models import mlp

        (place / "m.onnx").write_bytes(mlp())
    return {
        "gpt2": make(place / "gpt2"), "llama": place / "llama", "small": place / "small", "cache": place / "cache",
        "onnx": place / "m.onnx", "script": place / "script.py",
    }  # fmt: skip


def environment(places: dict[str, Path], **more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("ANNEAL_")}
    return kept | {
        "ANNEAL_DEVICE": "cpu", "ANNEAL_CACHE_DIR": str(places["cache"]), "ANNEAL_OFFLINE": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]), **more,
    }  # fmt: skip


def check_said(done: subprocess.CompletedProcess[bytes]) -> None:
    said = (done.stdout or b"") + (done.stderr or b"")
    assert b"Traceback" not in said, said.decode()
    assert b"Exception ignored" not in said, said.decode()


def launched(
    arguments: list[str], *, close: str = "", env: dict[str, str], cwd: Path, stdout: Any = None, stderr: Any = None
) -> subprocess.CompletedProcess[bytes]:
    """The command, with streams closed as a shell closes them: `close` is `>&-`, say."""
    line = ["sh", "-c", f'exec "$@" {close}', "sh", *ANNEAL, *arguments]
    return subprocess.run(
        line,
        stdout=stdout or subprocess.PIPE,
        stderr=stderr or subprocess.PIPE,
        env=env,
        cwd=cwd,
        check=False,
        timeout=240,
    )


def interrupted(
    arguments: list[str], wait: float, env: dict[str, str], cwd: Path
) -> subprocess.CompletedProcess[bytes]:
    with subprocess.Popen(
        [*ANNEAL, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, cwd=cwd
    ) as child:  # fmt: skip
        time.sleep(wait)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=240)
    return subprocess.CompletedProcess(arguments, child.returncode, out, err)


ROWS = [pytest.param(c, n, id=f"{c}-{n}".replace(" ", "_")) for c, n in product(CIRCUMSTANCES, COMMANDS)]


@pytest.mark.parametrize(("circumstance", "name"), thinned(ROWS, test=17, ci=17))
def test_every_command_in_every_circumstance(
    places: dict[str, Path], tmp_path: Path, circumstance: str, name: str
) -> None:
    command = COMMANDS[name]
    arguments = [a.format(out=tmp_path, **places) for a in command.arguments.split()]
    env, cwd, wanted = environment(places), tmp_path, command.codes
    if circumstance == "stdout full":
        with open("/dev/full", "wb") as full:
            done = launched(arguments, env=env, cwd=cwd, stdout=full)
        wanted = (4,)
        assert b"stdout cannot be written: No space left on device" in done.stderr
    elif circumstance == "stdout closed":
        done, wanted = launched(arguments, close=">&-", env=env, cwd=cwd), (4,)
        assert b"stdout cannot be written: it is closed" in done.stderr
    elif circumstance in ("stderr closed", "stderr full"):
        if circumstance == "stderr full":
            with open("/dev/full", "wb") as full:
                done = launched(arguments, env=env, cwd=cwd, stderr=full)
        else:
            done = launched(arguments, close="2>&-", env=env, cwd=cwd)
        # doctor on a machine with a graphics card has no advice, and so nothing for stderr
        if command.speaks and not done.stdout.startswith("\u2713 webgpu".encode()):
            wanted = (*[c for c in wanted if c], 4)
            if done.returncode == 4 and "--json" not in arguments:
                assert b"anneal: stderr cannot be written: " in done.stdout
        assert len(done.stdout) > 20 or name == "cache where"
    elif circumstance == "both closed":
        done, wanted = launched(arguments, close=">&- 2>&-", env=env, cwd=cwd), (4,)
    elif circumstance == "all closed":
        done, wanted = launched(arguments, close="<&- >&- 2>&-", env=env, cwd=cwd), (4,)
    elif circumstance == "reader left":
        reader, writer = os.pipe()
        os.close(reader)
        try:
            done = launched(arguments, env=env, cwd=cwd, stdout=writer)
        finally:
            os.close(writer)
        wanted = (0, *wanted)
        assert b"stdout cannot be" not in done.stderr
    elif circumstance == "Ctrl-C":
        # 130, or what it would be if it was there first; before our first line runs, Python itself is interrupted
        done = interrupted(arguments, random.Random(name).uniform(0.06, 1.2), env, cwd)
        wanted = (130, *wanted)
    elif circumstance == "60 columns":
        done = launched(arguments, env=env | {"COLUMNS": "60"}, cwd=cwd)
    elif circumstance == "no HOME":
        env = {k: v for k, v in env.items() if k not in ("HOME", "ANNEAL_CACHE_DIR") and not k.startswith("XDG_")}
        done = launched(arguments, env=env, cwd=cwd)
    elif circumstance == "C locale":
        done = launched(arguments, env=env | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, cwd=cwd)
    else:
        done = launched(arguments, env=env | {"ANNEAL_CACHE_DIR": "/proc/nowhere"}, cwd=Path("/proc"))
    check_said(done)
    said = [(stream or b"")[-400:] for stream in (done.stdout, done.stderr)]
    assert done.returncode in wanted, (done.returncode, *said)
    if "closed" in circumstance or "full" in circumstance or circumstance == "reader left":
        if name == "train save":  # what the command was for is there whoever hears of it
            assert len(io.safe_load(tmp_path / "w.safetensors")) > 3
        if name == "train gpt2":
            assert io.safe_metadata(tmp_path / "c" / "model.safetensors")["training"] == "training-2.safetensors"


@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_is_written_where_a_command_runs(
    places: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """The command writes the files that its flag names, and no other."""
    here, out = tmp_path / "here", tmp_path / "out"
    here.mkdir()
    out.mkdir()
    monkeypatch.chdir(here)
    for key, value in environment(places).items():
        if key.startswith("ANNEAL_"):
            monkeypatch.setenv(key, value)
    done = run(capsys, *[a.format(out=out, **places) for a in COMMANDS[name].arguments.split()])
    assert done.code in COMMANDS[name].codes, done.err
    assert not [*here.iterdir()]
    assert bool([*out.iterdir()]) == ("{out}" in COMMANDS[name].arguments)


SERVERS = {"web": "web :0 --no-open", "viz": "viz mlp --no-open", "viz file": "viz {onnx} --no-open"}
AROUND = (
    "nothing", "stdout full", "stdout closed", "stderr full", "stderr closed", "all closed", "reader left", "C locale",
    "nowhere to write",
)  # fmt: skip
SERVED = [pytest.param(c, n, id=f"{c}-{n}".replace(" ", "_")) for c, n in product(AROUND, SERVERS)]


@pytest.mark.parametrize(("circumstance", "name"), thinned(SERVED, test=9, ci=6))
def test_every_server_in_every_circumstance(
    places: dict[str, Path], tmp_path: Path, circumstance: str, name: str
) -> None:
    """It serves until Ctrl-C; where nobody can be told its address it does not start."""
    pytest.importorskip("uvicorn")
    if name == "viz file":
        pytest.importorskip("onnx")
    close = {"stdout closed": ">&-", "stderr closed": "2>&-", "all closed": "<&- >&- 2>&-"}.get(circumstance, "")
    env, cwd = environment(places), tmp_path
    if circumstance == "C locale":
        env |= {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    if circumstance == "nowhere to write":
        env, cwd = env | {"ANNEAL_CACHE_DIR": "/proc/nowhere"}, Path("/proc")
    reader, writer = os.pipe()
    streams: dict[str, Any] = {"stdout": writer, "stderr": subprocess.PIPE}
    with open("/dev/full", "wb") as full:
        if circumstance.endswith("full"):
            streams[circumstance.split(maxsplit=1)[0]] = full
        if circumstance == "reader left":
            os.close(reader)
        arguments = [a.format(**places) for a in SERVERS[name].split()]
        line = ["sh", "-c", f'exec "$@" {close}', "sh", *ANNEAL, *arguments]
        child = subprocess.Popen(line, env=env, cwd=cwd, **streams)
    os.close(writer)
    speaks = circumstance not in ("stdout full", "stdout closed", "all closed", "reader left")
    unwritable = name == "viz file" and circumstance == "nowhere to write"  # the file is to be kept there
    if speaks:
        with os.fdopen(reader) as told:
            first = told.readline()
            if not unwritable:
                with urllib.request.urlopen(first.split()[-1]) as page:
                    assert page.status == 200
                child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    check_said(subprocess.CompletedProcess(arguments, child.returncode, b"", err))
    wanted = (4,) if unwritable or circumstance in ("stdout full", "stdout closed", "all closed") else (0,)
    assert child.returncode in wanted, (child.returncode, (err or b"")[-400:])
    if not speaks and circumstance != "reader left":
        os.close(reader)


@pytest.mark.parametrize("number", thinned(range(60), test=30, ci=20))
def test_ctrl_c_in_the_first_second(places: dict[str, Path], tmp_path: Path, number: int) -> None:
    """Most of it is imports. It is pressed once `main` listens, which is the first that it does."""
    env = environment(places)
    code = (
        "import sys, anneal.cli as cli; listen = cli._on_interrupt\n"
        "def told(pressed):\n"
        "    undo = listen(pressed); sys.stderr.write('up\\n'); sys.stderr.flush(); return undo\n"
        "cli._on_interrupt = told; cli.main()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, "train", "mlp", "--steps", "1000000", "--plain"],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=env, cwd=tmp_path,
    ) as child:  # fmt: skip
        assert child.stderr is not None
        child.stderr.readline()
        time.sleep(number * 0.02)
        child.send_signal(signal.SIGINT)
        try:
            _, err = child.communicate(timeout=120)
        finally:
            child.kill()  # if it went on: the block waits for its end
    assert b"Traceback" not in err, err.decode()
    assert b"Exception ignored" not in err, err.decode()
    assert child.returncode == 130, err
    assert b"stop" in err


def test_main_is_there_at_once() -> None:
    """Before it is, nobody catches Ctrl-C: nothing is imported for it that Python has not imported for itself."""
    code = (
        "import sys; before = set(sys.modules); from anneal.cli import main; print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"__future__", "anneal", "anneal.cli"}


# -- places that a flag names ------------------------------------------------------------------------------------------

WRITING = {
    "--save": "train mlp --steps 2 --plain --save {place}",
    "--checkpoint": "train gpt2 --steps 1 --batch 2 --plain --model-dir {gpt2} --checkpoint {place}",
    "--picture": "run resnet9 --count 2 --weights {small} --picture {place}",
}
READING = {
    "--model-dir": "gpt2 sample x --model-dir {place}",
    "train --model-dir": "train gpt2 --steps 1 --model-dir {place}",
    "MODEL.bin": "run llama2c {place}",
    "--tokenizer": "run llama2c {llama}/model.bin --tokenizer {place}",
    "--replay": "check --replay {place}",
    "--weights": "run resnet9 --weights {place}",
}
THINGS = (
    "link",
    "dangling link",
    "loop",
    "pipe",
    "device",
    "null device",
    "folder",
    "nowhere",
    "long name",
    "surrogate",
)


def _thing(kind: str, place: Path) -> str:
    """What a flag is given, made at `place`."""
    if kind == "link":
        place.with_name("target").write_bytes(b"old")
        place.symlink_to(place.with_name("target"))
    elif kind == "dangling link":
        place.symlink_to(place.with_name("target"))
    elif kind == "loop":
        place.symlink_to(place)
    elif kind == "pipe":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    return {
        "device": "/dev/full", "null device": "/dev/null", "nowhere": str(place / "no" / "where"),
        "long name": str(place.with_name("n" * 300)), "surrogate": str(place) + "\udcff",
    }.get(kind, str(place))  # fmt: skip


PLACES = [pytest.param(f, t, id=f"{f}-{t}".replace(" ", "_")) for t, f in product(THINGS, {**WRITING, **READING})]


@pytest.mark.parametrize(("flag", "kind"), thinned(PLACES, test=13, ci=6))
def test_every_place_that_a_flag_names(places: dict[str, Path], tmp_path: Path, flag: str, kind: str) -> None:
    place = _thing(kind, tmp_path / "x")
    before = os.lstat(place) if os.path.lexists(place) else None
    text = {**WRITING, **READING}[flag]
    done = launched([a.format(place=place, **places) for a in text.split()], env=environment(places), cwd=tmp_path)
    check_said(done)
    fine = {"link", "dangling link", "surrogate"}
    if flag == "--checkpoint":
        fine = {"folder", "nowhere", "surrogate"}
    wanted = 0 if flag in WRITING and kind in fine else 4
    assert done.returncode == wanted, (done.returncode, done.stderr[-400:])
    if wanted:
        assert re.match(rb"(fetch .*\n|model .*\n)*error: ", done.stderr), done.stderr
    if before is not None and kind != "folder":
        after = os.lstat(place)
        assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)  # still a link, a pipe, a device
    if kind in ("link", "dangling link") and wanted == 0:
        assert len((tmp_path / "target").read_bytes()) > 100
    assert not list(tmp_path.rglob("*.unfinished"))


# -- arguments ---------------------------------------------------------------------------------------------------------

HUGE = str(10**30)
ARGUMENTS = {
    "train mlp": ("--steps", "--batch", "--seed", "--lr", "--log-every", "--checkpoint-every"),
    "graph mlp": ("--batch", "--limit"),
    "kernels mlp": ("--batch",),
    "gpt2 sample x": ("--max-tokens", "--temperature", "--top-k", "--seed"),
    "run llama2c x": ("--max-tokens", "--temperature", "--top-p", "--seed"),
    "run resnet9": ("--count", "--seed"),
    "cache prune": ("--older-than", "--max-size"),
}
VALUES = ("-1", "0", HUGE, "9" * 5000, "1e400", "-1e400", "nan", "", "x", "0x10", "1_0", "\u0661", "a" * 300)
FINE = {
    ("--seed", "0"),
    ("--limit", "0"),
    ("--top-k", "0"),
    ("--temperature", "0"),
    ("--limit", "\u0661"),
    ("--limit", "1_0"),
}


class Begun(Exception):
    """A command took its flags and went on."""


def nothing(*_: object, **__: object) -> None:
    raise Begun


@pytest.mark.parametrize(
    ("command", "flag"), thinned([pytest.param(c, f) for c, fs in ARGUMENTS.items() for f in fs], test=4, ci=2)
)
def test_every_number_of_every_flag(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, flag: str
) -> None:
    """In this process. What is no number for the flag is refused, before anything else is done or said."""
    from anneal import settings
    from tests.cli.helpers import run

    monkeypatch.chdir(tmp_path)
    (tmp_path / "x").touch()  # llama2c's model: one that is not there is refused first
    for part in (
        "anneal.inspect.traced_model",
        "anneal.cli._flags.may_download",
        "anneal.cli.commands.gpt2.places",
    ):
        __import__(part.rpartition(".")[0])
        monkeypatch.setattr(part, nothing)
    monkeypatch.setattr("anneal.backend.get_device", nothing)
    refused = 0
    for value in VALUES:
        try:
            with settings.override(cache_dir=str(tmp_path), offline=True, device="cpu"):
                outcome = run(capsys, *command.split(), f"{flag}={value}")
        except Begun:
            assert re.fullmatch(r"\d+|1_0", value), value
            continue
        refused += 1
        assert outcome.code == 2 or (command == "cache prune" and re.fullmatch(r"\d+", value)), (value, outcome)
        assert "Traceback" not in outcome.err
        assert outcome.out == "" or command == "cache prune"
    assert refused >= 8


COMMANDS_OF_A_MODEL = (
    "train",
    "graph",
    "kernels",
    "kernels --time --device webgpu",
    "train --device webgpu --adapter none",
)


@pytest.mark.parametrize("command", COMMANDS_OF_A_MODEL)
@pytest.mark.parametrize("model", ["nanogtp", "n" * 300, "", "../nanogpt", "NANOGPT", "makemore-grn"])
def test_an_unknown_model_is_refused_before_anything_else(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str, model: str
) -> None:
    from tests.cli.helpers import run

    monkeypatch.setattr("anneal.backend.get_device", nothing)
    monkeypatch.setattr("anneal.assets.fetch", nothing)
    name, *flags = command.split()
    outcome = run(capsys, name, model, *flags)
    assert outcome.code == 2
    assert outcome.err.startswith("error: there is no model called ")
    assert len(outcome.err) < 500
    if model in ("nanogtp", "NANOGPT"):
        assert "Did you mean 'nanogpt'" in outcome.err
    if model == "makemore-grn":
        assert "'makemore-gru'" in outcome.err.split("There is")[0]


def test_every_command_notices_a_wrong_variable(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from anneal import settings
    from tests.cli.helpers import run

    monkeypatch.setenv("ANNEAL_OFFLINE", "yes")
    for name, command in COMMANDS.items():
        monkeypatch.setattr(settings._IN_FORCE, "settings", None)
        outcome = run(capsys, *command.arguments.split())
        if name in ("help", "version"):
            assert outcome.code == 0
            continue
        assert (outcome.code, outcome.out) == (2, ""), name
        assert outcome.err == "error: ANNEAL_OFFLINE='yes' is not a valid value; use one of: 0, 1\n"
