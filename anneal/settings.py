"""The environment variables of anneal: read and checked once, here alone. Those of other programs that it honours stand
in docs/environment.md.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace

from anneal.errors import SettingError
from anneal.frozen import frozen

__all__ = ["DEVICES", "TABLE", "Setting", "Settings", "current", "override", "read", "watch"]

DEVICES = ("auto", "cpu", "webgpu")
IMPLEMENTATIONS = ("auto", "wgpu", "dawn")
CPUS = ("auto", "numpy", "c")

# The output that each level of ANNEAL_DEBUG adds to the levels below it.
DEBUG_LADDER = ("nothing", "devices", "timing", "kernels", "WGSL", "IR after each pass", "every rewrite")


@frozen
class Settings:
    """The values in force. Fields are named after their variables: `debug` is ANNEAL_DEBUG."""

    debug: int = 0
    device: str = "auto"
    adapter: str = ""
    webgpu: str = "auto"
    cpu: str = "auto"
    require_webgpu: bool = False
    trusted: bool = True
    cache: bool = True
    cache_dir: str = ""
    offline: bool = False
    beam: int = 0
    bundle: bool = False
    traceback: str = "short"
    replay: bool = True


@frozen
class Setting:
    """An environment variable: its field in `Settings`, the parser of its text, its valid values, and its meaning."""

    field: str
    values: str
    meaning: str
    parse: Callable[[str], object]

    @property
    def variable(self) -> str:
        """The name of the environment variable."""
        return f"ANNEAL_{self.field.upper()}"


def _below(end: int) -> Callable[[str], int]:
    return {str(n): n for n in range(end)}.__getitem__


def _one_of(words: Iterable[str]) -> Callable[[str], str]:
    known = {word: word for word in words}
    return lambda text: known[text.lower()]


_switch = {"0": False, "1": True}.__getitem__


TABLE: tuple[Setting, ...] = (
    Setting(
        "debug",
        "0 to 6",
        "how much is logged on stderr; each level adds: " + ", ".join(DEBUG_LADDER[1:]),
        _below(len(DEBUG_LADDER)),
    ),
    Setting(
        "device",
        ", ".join(DEVICES),
        "the default device of tensors. auto, or unset: the `anneal` commands use the GPU if there is one. Your own "
        'programs use the cpu (unlike `an.set_default_device("auto")`)',
        _one_of(DEVICES),
    ),
    Setting(
        "adapter",
        "text or a number",
        "use the WebGPU adapter whose name contains this text, or that has this number in `anneal doctor`; a software "
        "adapter (a driver that imitates a GPU on the processor) is used only so, or with `ANNEAL_REQUIRE_WEBGPU=1`",
        str,
    ),
    Setting(
        "webgpu",
        ", ".join(IMPLEMENTATIONS),
        "the implementation of WebGPU; dawn needs the package wgpudawn; auto: wgpu if it finds an adapter, else dawn",
        _one_of(IMPLEMENTATIONS),
    ),
    Setting(
        "cpu",
        ", ".join(CPUS),
        "what runs kernels on the cpu: numpy, and webgpu's commands are recorded in Python; c: C of this machine's "
        "compiler, and NumPy where there is none or C lacks something; auto: C for jit functions, and for other "
        "programs once they have run often",
        _one_of(CPUS),
    ),
    Setting(
        "require_webgpu",
        "0, 1",
        "1: accept a software adapter, and raise an error instead of using the cpu if there is no adapter",
        _switch,
    ),
    Setting("trusted", "0, 1", "1: shaders without the driver's bounds checks; 0: with them", _switch),
    Setting("cache", "0, 1", "1: keep compiled plans and kernels on disk; 0: neither read nor write them", _switch),
    Setting(
        "cache_dir",
        "a folder",
        "the folder of the cache and of downloads; unset: the user's cache folder for anneal",
        str,
    ),
    Setting("offline", "0, 1", "1: never connect, a missing file is an error; 0: download it", _switch),
    Setting(
        "beam",
        "0 to 32",
        "the beam width of the search for faster kernels on webgpu; 0: no search",
        _below(33),
    ),
    Setting(
        "replay",
        "0, 1",
        "1: a loop without jit reuses the graph and kernels of its previous steps; 0: each step is traced again",
        _switch,
    ),
    Setting("bundle", "0, 1", "1: `anneal train` saves its settings and results in a new folder in runs/", _switch),
    Setting(
        "traceback",
        "short, full",
        "full: tracebacks of your mistakes show the library's own frames; short: they do not",
        {"short": "short", "full": "full"}.__getitem__,
    ),
)


def _value(setting: Setting, text: str) -> object:
    try:
        return setting.parse(text.strip())
    except (KeyError, ValueError):
        raise SettingError(f"{setting.variable}={text!r} is not a valid value; use one of: {setting.values}") from None


def read(environ: Mapping[str, str]) -> Settings:
    """The settings of `environ`, a mapping of environment variables. An empty value means unset; an unknown ANNEAL_
    name is an error, because a misspelt switch that does nothing is worse than one that stops.
    """
    known = {s.variable: s for s in TABLE}
    values = {}
    for name, text in environ.items():
        if not name.startswith("ANNEAL_") or not text.strip():
            continue
        if name not in known:
            raise SettingError(f"{name} is not a setting; the settings are: {', '.join(known)}")
        values[known[name].field] = _value(known[name], text)
    return replace(Settings(), **values)  # type: ignore[arg-type]


class _InForce(list[Callable[[Settings], None]]):
    """The settings of the process, read from the environment once; the items are told when they change."""

    settings: Settings | None = None


_IN_FORCE = _InForce()


def variable(name: str) -> str:
    """A variable of other programs that anneal honours; "" where it is not set."""
    return os.environ.get(name, "")


def current() -> Settings:
    """The settings in force; the environment is read at the first call, and `TABLE` is the list of what is read there.

    >>> from anneal import settings
    >>> settings.current().debug
    0
    >>> with settings.override(debug=2, device="cpu"):
    ...     settings.current().device
    'cpu'
    """
    found = _IN_FORCE.settings
    return _put(read(os.environ)) if found is None else found


def watch(f: Callable[[Settings], None]) -> None:
    """Have `f` called with the settings in force: when they are read, when they change, and now if they were read
    before.
    """
    _IN_FORCE.append(f)
    if _IN_FORCE.settings is not None:
        f(_IN_FORCE.settings)


def _put(s: Settings) -> Settings:
    _IN_FORCE.settings = s
    for f in _IN_FORCE:
        f(s)
    return s


@contextmanager
def override(**changes: object) -> Iterator[Settings]:
    """Set the fields of `Settings` that `changes` names inside a with-block, for the whole process. Values are checked
    as the environment's are.
    """
    names = {f.name for f in fields(Settings)}
    if unknown := sorted(set(changes) - names):
        raise SettingError(f"{unknown[0]} is not a setting; the settings are: {', '.join(sorted(names))}")
    by_field = {s.field: s for s in TABLE}
    checked = {k: _value(by_field[k], str(int(v) if isinstance(v, bool) else v)) for k, v in changes.items()}
    before = current()
    try:
        yield _put(replace(before, **checked))  # type: ignore[arg-type]
    finally:
        _put(before)
