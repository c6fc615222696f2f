"""Long work of every command: it is told of, into a pipe and on a terminal, and not with --quiet; and Ctrl-C at each
moment of it leaves exit code 130, a terminal as it was, and no torn file.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pty")  # Windows has none
from tests.assets.server import BODY, Server
from tests.cli.forks import Forks, Ran
from tests.cli.terminal import Terminal
from tests.cli.test_circumstances import made
from tests.cli.test_screens import commands
from tests.tiers import thinned

# Each command, and the work that it tells of; a number of pieces is known of the work.
COMMANDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "train": (
        "train mlp --steps 3 --save {out}/w.safetensors",
        ("opening cpu", "making mlp and its data", "training N", "passes of schedule N", "compiling kernels N",
         "sampling", "tracing a step"),
    ),
    "train gpt2": (
        "train gpt2 --steps 2 --batch 2 --plain --model-dir {gpt2} --checkpoint {out}/c",
        ("making gpt2 and its data", "training N", "compiling kernels N"),
    ),
    "graph": ("graph mlp --until linearise --kernel 1", ("tracing mlp", "passes of schedule N", "passes of codegen N")),
    "kernels": ("kernels mlp", ("tracing mlp", "passes of schedule N", "generating kernels N", "passes of codegen N")),
    "kernels time": ("kernels mlp --time", ("tracing mlp", "compiling kernels N", "timing kernels N")),
    "explain model": ("explain --model mlp --limit 3", ("tracing mlp", "compiling kernels N")),
    "check": ("check mlp --batch 8", ("compiling kernels N", "checking kernels N")),
    "record": ("record {script} -o {out}/r.zip", ("compiling kernels N", "generating kernels N", "timing kernels N")),
    "gpt2 sample": (
        "gpt2 sample Hello --max-tokens 3 --model-dir {gpt2}",
        ("reading the weights", "compiling kernels N", "writing N"),
    ),
    "llama2c": ("run llama2c {llama}/model.bin ab --max-tokens 4", ("reading the weights", "writing N")),
    "resnet9": (
        "run resnet9 --count 2 --weights {small} --picture {out}/p.png",
        ("looking at pictures N", "compiling kernels N"),
    ),
    "doctor": ("doctor", ("looking for adapters",)),
    "onnx info": ("onnx info {onnx}", ("reading the model",)),
    "onnx run": ("onnx run {onnx}", ("reading the model", "running nodes N", "compiling kernels N")),
    "onnx check": (
        "onnx check {onnx}",
        ("reading the model", "running nodes N", "running the reference", "comparing values N"),
    ),
    "export": (
        "export mlp -o {out}/p --steps 2",
        ("making mlp and its data", "training N", "capturing functions N", "compiling kernels N", "comparing values N",
         "writing files N"),
    ),
    "export onnx": ("export {onnx} -o {out}/p", ("reading the model", "capturing functions N", "writing files N")),
    "fit": ("fit mlp --for browser", ("making mlp and its data", "capturing functions N")),
    "data tokenize": (
        "data tokenize {script} --output {out}/t.bin --model-dir {gpt2}",
        ("encoding the text",),
    ),
    "onnx export": ("onnx export mlp -o {out}/m.onnx", ("tracing the model", "writing nodes", "writing m.onnx")),
}  # fmt: skip


# They look into a folder, serve until they are stopped, or give place to mpirun (tests/cli/test_circumstances.py).
OTHERS = {"cache where", "cache ls", "cache prune", "web", "viz", "launch"}


def test_every_command_has_a_row() -> None:
    every = {" ".join(command) for command in commands() if command}
    groups = {name.split()[0] for name in every if " " in name}
    rows = {" ".join(line.split()[:2]) for line, _ in COMMANDS.values()}
    named = {name for name in every if any(f"{row} ".startswith(f"{name} ") for row in rows)}
    assert every - groups - OTHERS - named == set()


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    pytest.importorskip("onnx")
    return made(tmp_path_factory.mktemp("moments"))


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    found = Forks(tmp_path_factory.mktemp("forks"))
    yield found
    found.close()


def environ(places: dict[str, Path], **more: str) -> dict[str, str]:
    return {
        "ANNEAL_DEVICE": "cpu", "ANNEAL_CACHE_DIR": str(places["cache"]), "ANNEAL_OFFLINE": "1", "TERM": "xterm-256color",
        "NO_PROXY": "127.0.0.1", **more,
    }  # fmt: skip


def line(name: str, places: dict[str, Path], out: Path) -> list[str]:
    return [a.format(out=out, **places) for a in COMMANDS[name][0].split()]


@pytest.mark.parametrize("name", thinned(COMMANDS, test=16, ci=4))
def test_long_work_is_told_of(forks: Forks, places: dict[str, Path], tmp_path: Path, name: str) -> None:
    ran = forks.run(line(name, places, tmp_path), tmp_path, environ(places), slowed=True)
    assert ran.code in ((0, 3) if name == "doctor" else (0,)), ran.err
    known = dict(ran.works)
    wanted = COMMANDS[name][1]
    assert {what.removesuffix(" N") for what in wanted} <= set(known)
    for what in wanted:
        plain = what.removesuffix(" N")
        assert (known[plain] is not None) == (plain != what), (what, known[plain])
        if (known[plain] or 0) > 1:  # its pieces took 0.03 s each: it is told of in the pipe
            assert re.search(rf"^{re.escape(plain)}: \d+ of \d+, \d+ s", ran.err, re.MULTILINE), ran.err
    quiet = forks.run([*line(name, places, tmp_path), "--quiet"], tmp_path, environ(places), slowed=True)
    # Told sooner than ever: before the options are read. How many seconds that took is the machine's matter.
    early = re.compile(rf"anneal {COMMANDS[name][0].split()[0]}: \d+ s")
    assert [text for text in quiet.err.splitlines() if not early.fullmatch(text)] == []
    assert quiet.code == ran.code


MOMENTS = [
    pytest.param(name, what.removesuffix(" N"), moment, id=f"{name}-{what}-{moment}".replace(" ", "_"))
    for name, (_, works) in COMMANDS.items()
    for what in works
    for moment in ("begins", *["goes on"] * what.endswith(" N"))
]
MOMENTS += [pytest.param(name, "os.fsync", "", id=f"{name}-writing") for name in ("train", "train gpt2", "onnx export")]


@pytest.mark.parametrize(("name", "what", "moment"), thinned(MOMENTS, test=30, ci=8))
def test_ctrl_c_at_each_moment(
    forks: Forks, places: dict[str, Path], tmp_path: Path, name: str, what: str, moment: str
) -> None:
    terminal = Terminal(80, 24)
    try:
        ran = forks.run(
            line(name, places, tmp_path),
            tmp_path,
            environ(places, ANNEAL_CACHE="0"),
            terminal=terminal,
            interrupt=(what, moment),
        )
        check_stopped(ran, terminal)
    finally:
        terminal.close()
    check_files(tmp_path)


@pytest.mark.parametrize("moment", ["begins", "goes on"])
def test_ctrl_c_while_a_file_comes(forks: Forks, places: dict[str, Path], tmp_path: Path, moment: str) -> None:
    """What has come stays for the next time, under a name that nobody takes for the file."""
    server, terminal = Server(), Terminal(80, 24)
    cache = tmp_path / "cache"
    try:
        ran = forks.run(
            ["gpt2", "sample", "Hello"], tmp_path,
            environ(places, ANNEAL_CACHE_DIR=str(cache), ANNEAL_OFFLINE="0"), terminal=terminal,
            interrupt=("downloading gpt2/model.safetensors", moment),
            assets=(server.url, hashlib.sha256(BODY).hexdigest(), len(BODY)),
        )  # fmt: skip
        check_stopped(ran, terminal)
    finally:
        terminal.close()
        server.shutdown()
        server.server_close()
    found = [path for path in cache.rglob("model.safetensors*") if path.suffix != ".lock"]
    assert {path.suffix for path in found} <= {".part"}
    assert all(BODY.startswith(path.read_bytes()) for path in found)


def check_stopped(ran: Ran, terminal: Terminal) -> None:
    """Exit code 130, and a terminal as it was: no bar, no other screen, a cursor, folded lines."""
    assert ran.code == 130, (ran.code, terminal.text)
    assert "stop" in terminal.text
    assert "Traceback" not in terminal.text
    assert "Exception ignored" not in terminal.text
    assert ran.raw.count(b"\x1b[?1049h") == ran.raw.count(b"\x1b[?1049l")
    for shown, hidden in ((b"\x1b[?25h", b"\x1b[?25l"), (b"\x1b[?7h", b"\x1b[?7l")):
        assert ran.raw.rfind(shown) >= ran.raw.rfind(hidden)
    assert terminal.screen.cursor.x == 0
    assert not re.search(r"^[^\n]*(\u2501|\u2500{2})[^\n]* \d+ of \d+", terminal.text.splitlines()[-1])


def check_files(place: Path) -> None:
    """Each file that the command began is whole or absent."""
    from anneal.tensor import io
    from examples.gpt2 import read_checkpoint

    assert not list(place.rglob("*.unfinished"))
    for path in place.rglob("*.safetensors"):
        assert io.safe_load(path)
    if (place / "c" / "model.safetensors").exists():
        read_checkpoint(place / "c")
    for path in place.rglob("*.onnx"):
        import onnx

        onnx.checker.check_model(onnx.load(path))
    for path in place.rglob("*.png"):
        assert path.read_bytes().endswith(b"IEND\xaeB`\x82")
