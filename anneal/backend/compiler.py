"""The machine's C compiler: finding it, running it, and loading the libraries that it makes."""

from __future__ import annotations

import _ctypes
import base64
import contextlib
import ctypes
import functools
import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias
from weakref import WeakValueDictionary

from anneal import cache
from anneal.frozen import Texts, frozen

FLAGS = (
    "-std=gnu11", "-O2", "-march=native", "-fwrapv", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math",
    "-fopenmp-simd", "-fno-semantic-interposition", "-w", "-fPIC", "-shared", "-pthread",
)  # fmt: skip
_NAMES = ("cc", "clang", "gcc")
# The folders of macOS's compiler; without one of them its `cc` only asks people to install it.
_TOOLS = ("/Library/Developer/CommandLineTools", "/Applications/Xcode.app")
_SECONDS = 300


class NotCompiled(subprocess.SubprocessError):
    """Raised if no library could be compiled; the message says why."""


@frozen
class Compiler:
    """A C compiler: the start of its command line, and facts that distinguish it from other compilers."""

    command: Texts
    identity: tuple[object, ...]


class Library(ctypes.CDLL):
    """A loaded library and its key in the cache. It is closed when nothing holds it any more; programs that call its
    functions hold it.
    """

    def __init__(self, key: str, path: str) -> None:
        super().__init__(path)
        self.key = key

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if self._handle and not ending():
            _ctypes.dlclose(self._handle)


@functools.cache
def find() -> Compiler | None:
    """The first compiler of cc, clang and gcc on the PATH, else that of the wheel `ziglang`; None without any."""
    if sys.platform == "win32":
        return None
    # on macOS its command there only asks people to install a compiler
    stands_in = sys.platform == "darwin" and not any(map(os.path.exists, _TOOLS))
    for name in _NAMES:
        found = shutil.which(name)
        if found and os.path.isabs(found) and not (stands_in and found.startswith("/usr/bin/")):
            return Compiler((found,), _identity(found))
    spec = importlib.util.find_spec("ziglang")
    if spec and spec.origin:
        return Compiler((sys.executable, "-m", "ziglang", "cc"), _identity(spec.origin))
    return None


def why_none() -> str:
    """The reason why `find` finds no compiler."""
    if sys.platform == "win32":
        return "kernels in C need POSIX threads, which Windows lacks"
    return "there is no C compiler; install gcc or clang, or `pip install ziglang`"


def _identity(path: str) -> tuple[object, ...]:
    """The facts that differ if the compiler does, or the machine whose instructions it uses."""
    place = os.path.realpath(path)
    facts = os.stat(place)
    return place, facts.st_size, facts.st_mtime_ns, FLAGS, machine()


@functools.cache
def machine() -> Texts:
    """The processor's names, and its instructions where the system tells."""
    lines = set()
    with contextlib.suppress(OSError):
        text = Path("/proc/cpuinfo").read_text()
        lines = {line for line in text.split("\n") if line.startswith(("model name", "flags", "Features", "CPU part"))}
    return (platform.system(), platform.machine(), platform.processor(), *sorted(lines))


def version(compiler: Compiler) -> str:
    """The first line of what a compiler says of itself."""
    return _ran([(*compiler.command, "--version")], tempfile.gettempdir())[0].partition("\n")[0]


# libraries that are in use, by their keys
Libraries: TypeAlias = WeakValueDictionary[str, Library]


def libraries(texts: Sequence[str], compiler: Compiler, loaded: Libraries) -> list[Library]:
    """A library for each text of C. Those that are not `loaded` are read from the cache, which keeps them by text,
    compiler, flags and machine, or else compiled side by side; all are loaded then.

    Raises SubprocessError or OSError if one cannot be had.
    """
    wanted = {key_of(text, compiler): text for text in texts}
    found = {key: library for key in wanted if (library := known(key, loaded))}
    missing = [key for key in wanted if key not in found]
    for key, code in zip(missing, _compiled([wanted[key] for key in missing], compiler)):
        text = base64.b85encode(code).decode()
        cache.save("native", cache.disk_key(key), text, f"compiled kernels, {len(code) >> 10} KiB", private=True)
        found[key] = _loaded(key, code, loaded)
    return [found[key] for key in wanted]


def key_of(text: str, compiler: Compiler) -> str:
    return hashlib.blake2b(repr((text, compiler.identity)).encode(), digest_size=16).hexdigest()


def known(key: str, loaded: Libraries) -> Library | None:
    """The library of this key if it is `loaded`, or the cache has it."""
    found = loaded.get(key)
    if found is None and (code := cache.load("native", cache.disk_key(key), base64.b85decode, private=True)):
        found = _loaded(key, code, loaded)
    return found


def _folder() -> tempfile.TemporaryDirectory[str]:
    """A new folder that only this user can read or write, gone after the block."""
    return tempfile.TemporaryDirectory(prefix="anneal-", ignore_cleanup_errors=True)


def _loaded(key: str, code: bytes, loaded: Libraries) -> Library:
    """The very bytes that were checked, loaded from a new file in a new private folder."""
    with _folder() as folder:
        path = Path(folder, "unit.so")
        path.write_bytes(code)
        loaded[key] = library = Library(key, str(path))
        return library


def _compiled(texts: Sequence[str], compiler: Compiler) -> list[bytes]:
    """The libraries of `texts`, made in a private folder that is gone afterwards."""
    with _folder() as folder:
        commands = []
        for n, text in enumerate(texts):
            Path(folder, f"unit{n}.c").write_text(text)
            commands.append((*compiler.command, *FLAGS, "-o", f"unit{n}.so", f"unit{n}.c", "-lm"))
        _ran(commands, folder)
        return [Path(folder, f"unit{n}.so").read_bytes() for n in range(len(texts))]


def _ran(commands: Sequence[Texts], folder: str) -> list[str]:
    """The output of commands that run side by side, without a shell. None of them is left running."""
    running = []
    try:
        for command in commands:
            running.append(
                subprocess.Popen(
                    command, cwd=folder, env={**os.environ, "LC_ALL": "C"}, text=True, errors="replace",
                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                )
            )  # fmt: skip
        said = [p.communicate(timeout=_SECONDS)[0] for p in running]
    finally:
        for p in running:
            with p:  # which waits for it
                p.kill()
    for p, command, text in zip(running, commands, said, strict=True):
        if p.returncode:
            raise NotCompiled(f"{command[0]} failed with status {p.returncode}: {text.strip()[-2000:]}")
    return said
