"""`export`: functions become a page that runs their kernels in a browser, without Python; `fit` says if they can."""

from __future__ import annotations

import base64
import hashlib
import html
import inspect
import io
import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from anneal import files
from anneal.backend import Array, get_device
from anneal.errors import DataError, SettingError, UserError
from anneal.frozen import Json, Texts, frozen
from anneal.inspect import error_bounds
from anneal.onnx import named_tensors
from anneal.pages import program as paged
from anneal.pages.program import BoundStep, DeviceProfile, PageProgram, bound_step, planned_for, profile
from anneal.progress import told
from anneal.runtime import Jit, default_device
from anneal.tensor import Tensor, io as tensor_files, no_grad, tree_leaves
from anneal.transforms import paths_of
from anneal.uop import UOp
from anneal.version import __version__

Arrays = Mapping[str, Array]  # by name
STATIC = Path(__file__).parent / "static"
PIECE = 4 << 20  # bytes that are fetched, compared with their hash and passed on at a time
_KINDS = {"float32": "F32", "int32": "I32", "uint32": "U32"}
_MOST_SINGLE = 30 << 20
_POLICY = (
    "default-src 'none'; script-src {script}; style-src {style}; connect-src {connect}; img-src 'self' blob: data:; "
    "worker-src 'self'; base-uri 'none'; form-action 'none'"
)


def write(
    path: Path,
    model: Json,
    pack: Sequence[str],
    weights: Arrays,
    examples: Arrays,
    data: Arrays,
    single: bool,
) -> dict[str, int]:
    """Write the page; the bytes of each file. Raises DataError where that cannot be done."""
    blank = {n: a for n, a in weights.items() if a.dtype.name in _KINDS and a.size > 0 and not a.any()}
    # a page makes zeros itself, which state begins with
    model["zeros"] = {n: [_KINDS[a.dtype.name], list(a.shape)] for n, a in blank.items()}
    weights = {n: a for n, a in weights.items() if n not in blank}
    contents = {"kernels.wgsl": "".join(pack).encode(), "weights.safetensors": _packed(weights)}
    contents["check.safetensors"] = _packed(examples)
    if data:
        contents["data.safetensors"] = _packed(data)
    at = 0
    model["sources"] = [[at, at := at + len(source.encode())] for source in pack]
    model["piece"] = PIECE
    model["files"] = {name: {"bytes": len(b), "sha256": _hashes(b)} for name, b in contents.items()}
    contents["model.json"] = json.dumps(model, separators=(",", ":")).encode()
    if single:
        return _write_all({path: _single(str(model["name"]), contents)})
    names = ("anneal.js", "anneal.d.ts", "page.js", "style.css", "sw.js")
    contents |= {name: (STATIC / name).read_bytes() for name in names}
    contents["index.html"] = _page(str(model["name"]), contents)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise DataError(f"export: cannot make the folder {path}: {e.strerror or e}") from e
    return _write_all({path / name: b for name, b in contents.items()})


def check_place(path: Path, single: bool) -> None:
    """Raise DataError where the page cannot be written, before work is done for it."""
    place = path.parent if single else path
    while not place.exists():
        place = place.parent
    if not place.is_dir() or not os.access(place, os.W_OK):
        what = "may not be written to" if place.is_dir() else "is a file"
        raise DataError(f"export: cannot write {path}: {place} {what}; choose another place with -o")


def _packed(arrays: Arrays) -> bytes:
    out = io.BytesIO()
    tensor_files.safe_save({n: a.astype(np.uint32) if a.dtype == np.bool_ else a for n, a in arrays.items()}, out)
    return out.getvalue()


def _digest(data: bytes) -> str:
    return base64.b64encode(hashlib.sha256(data).digest()).decode()


def _hashes(data: bytes) -> list[str]:
    return [_digest(data[at : at + PIECE]) for at in range(0, max(1, len(data)), PIECE)]


def _write_all(contents: Mapping[Path, bytes]) -> dict[str, int]:
    for path, data in told(contents.items(), "writing files"):
        try:
            files.replace(path, lambda f, data=data: f.write(data))  # type: ignore[misc]
        except OSError as e:
            raise DataError(f"export: cannot write {path}: {e.strerror or e}") from e
    return {path.name: len(data) for path, data in contents.items()}


def _page(title: str, contents: Mapping[str, bytes]) -> bytes:
    """index.html of a folder: the policy lets it read its own folder and nothing else, and run no text as code."""
    policy = _POLICY.format(script="'self'", style="'self'", connect="'self'")
    head = f'<link rel="stylesheet" href="style.css" integrity="sha256-{_digest(contents["style.css"])}">\n'
    head += f'<script type="module" src="page.js" integrity="sha256-{_digest(contents["page.js"])}"></script>'
    return _html(title, policy, f'{head}\n<meta name="model" content="{_digest(contents["model.json"])}">', "")


def _single(title: str, contents: Mapping[str, bytes]) -> bytes:
    """One HTML file: files in base64, and code that the policy names by its hash."""
    size = sum(len(b) for b in contents.values()) * 4 // 3
    if size > _MOST_SINGLE:
        raise UserError(
            f"export: one file of {size >> 20} MB is more than {_MOST_SINGLE >> 20}; leave --single-file out, or make "
            "the weights smaller: weights='int8', --store int8"
        )
    script, style = (STATIC / "single.js").read_bytes(), (STATIC / "style.css").read_bytes()
    policy = _POLICY.format(script=f"'sha256-{_digest(script)}'", style=f"'sha256-{_digest(style)}'", connect="'none'")
    head = f'<style>{style.decode()}</style>\n<meta name="model" content="{_digest(contents["model.json"])}">'
    tail = "".join(
        f'<script type="application/octet-stream" data-file="{name}">{base64.b64encode(b).decode()}</script>\n'
        for name, b in contents.items()
    )
    return _html(title, policy, head, f'{tail}<script type="module">{script.decode()}</script>\n')


def _html(title: str, policy: str, head: str, tail: str) -> bytes:
    text = (STATIC / "index.html").read_text(encoding="utf-8")
    parts = {"title": html.escape(title), "policy": policy, "head": head, "tail": tail}
    for key, value in parts.items():  # what is put in last may have anything in it
        text = text.replace(f"{{{{{key}}}}}", value)
    return text.encode()


# -- weights as a page fetches them -----------------------------------------------------------------------------------
# A safetensors file in which large matrices may be halves, or bytes with scales.


FORMATS = ("f32", "f16", "int8")
VISITOR = "visitor"  # the weights come from files that the visitor of the page has
_LEAST = 1024  # elements below which there is nothing to be saved
SCALES = "#scale"  # the end of the name of a matrix's scales, one for each row


def stored(arrays: Arrays, as_they_are: Collection[str], form: str) -> tuple[dict[str, Array], dict[str, str]]:
    """The arrays of the file, and of those that are not held as they are used the form.

    Args:
        arrays: the tensors by name.
        as_they_are: the names of those that are not rounded: state, constants.
        form: one of `FORMATS`.

    Raises SettingError for another form.
    """
    if form not in FORMATS:
        raise SettingError(f"export: weights are {', '.join(FORMATS)}, not {form!r}")
    out = {}
    forms = {}
    for name, array in arrays.items():
        large = array.dtype == np.float32 and array.size >= _LEAST and array.ndim >= 2 and name not in as_they_are
        if form == "f16" and large:
            out[name], forms[name] = array.astype(np.float16), "f16"
        elif form == "int8" and large:
            rows = array.reshape(len(array), -1)
            scale = np.maximum(np.abs(rows).max(1), np.finfo(np.float32).tiny) / np.float32(127)
            out[name] = np.rint(rows / scale[:, None]).astype(np.int8).reshape(array.shape)
            out[name + SCALES], forms[name] = scale.astype(np.float32), "int8"
        else:
            out[name] = array.astype(np.uint32) if array.dtype == np.bool_ else array
    return out, forms


def loaded(file: Arrays, forms: Mapping[str, str]) -> dict[str, Array]:
    """The tensors as a page computes with them, from those of the file.

    >>> arrays = {"w": np.linspace(-1, 1, 2048, dtype=np.float32).reshape(2, 1024)}
    >>> back = loaded(*stored(arrays, set(), "int8"))["w"]
    >>> float(np.abs(back - arrays["w"]).max()) <= 1 / 254
    True
    """
    out = {name: array for name, array in file.items() if not name.endswith(SCALES)}
    for name, form in forms.items():
        out[name] = out[name].astype(np.float32)
        if form == "int8":
            out[name] *= file[name + SCALES].reshape(-1, *[1] * (out[name].ndim - 1))
    return out


DEFAULT = ("browser", "software")
Function = Callable[..., Any]


@frozen
class ExportedPage:
    """The page that was written: its files with their bytes, and what a run of each function takes.

    `memory` is the bytes that it holds on the GPU; `calls` are the launches of each function.
    """

    path: Path
    files: dict[str, int]
    kernels: int
    calls: dict[str, int]
    memory: int

    def __str__(self) -> str:
        size = sum(self.files.values())
        runs = ", ".join(f"{name}: {n} launches" for name, n in self.calls.items())
        return f"{self.path}: {size:,} bytes, {self.kernels} kernels, {self.memory:,} bytes on the GPU; {runs}"


@frozen
class Entry:
    """A function with its example, and the names of its tensors."""

    name: str
    function: Function
    args: tuple[Any, ...]
    inputs: list[tuple[str, Tensor]]
    gradients: bool

    def call(self, act: Callable[[], Any]) -> Any:
        """The result of `act`, with gradients recorded or not, as the function wants it."""
        if self.gradients:
            return act()
        with no_grad():
            return act()


def export(
    function: Function | Mapping[str, Function],
    example_args: Any,
    path: str | Path,
    *,
    train: bool | Collection[str] = False,
    profiles: Sequence[str | DeviceProfile] = DEFAULT,
    weights: str = "f32",
    single_file: bool = False,
    name: str | None = None,
    page: Mapping[str, Any] | None = None,
    data: Arrays | None = None,
) -> ExportedPage:
    """Write a page that computes `function` in a browser: `index.html`, plan, WGSL, weights and runtime.

    The function is called until it is captured: a training step makes a few steps, and the page begins with the state
    after them. The example's results are written too, and the page compares its own with them.

    Args:
        function: a function of tensors, a module or a jit function; or a dict of several, which share their tensors.
        example_args: its arguments, a tensor or a tuple; of several functions a dict. A size that varies is a Variable
            with a value.
        path: the folder, or with `single_file` the HTML file.
        train: whether gradients are taken inside; of several functions the names of those.
        profiles: the limits for which kernels are made (`PROFILES`, or a `DeviceProfile`), the most capable first: a
            page takes the first that its adapter meets.
        weights: "f32"; "f16" or "int8" for a smaller file: matrices are rounded, and computed with in float32;
            "visitor": the page asks its visitor for them, and compares nothing.
        single_file: one HTML file with all in it, below 30 MB.
        name: the title.
        page: what the page shows: {"kind": ...} (see anneal/pages/recipes.py); a plain form by default.
        data: arrays for the page, which no function reads.

    Raises UserError, DTypeError or JitError for what a page cannot do, and DataError where files cannot be written.

    >>> import tempfile
    >>> from anneal import nn
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = export(nn.Linear(3, 2), Tensor.ones(4, 3), folder)
    >>> made.calls
    {'run': 1}
    """
    check_place(Path(path), single_file)
    entries = entries_of(function, example_args, train)
    names = Names([e.function for e in entries])
    programs, plans = programs_of(entries, [profile(p) for p in profiles], names)
    file, more, examples = _values(entries, programs, plans, names, weights)
    title = name or getattr(entries[0].function, "__name__", type(entries[0].function).__name__)
    model = {
        "format": "anneal.page",
        "version": 1,
        "name": title,
        "made_by": f"anneal {__version__}",
        "programs": [p.data() for p in programs],
        "page": dict(page or {"kind": "form"}),
        **more,
    }
    files = write(Path(path), model, programs[0].pack, file, examples, data or {}, single_file)
    calls = {n: len(f["calls"]) for n, f in programs[0].functions.items()}
    return ExportedPage(Path(path), files, len(programs[0].kernels), calls, sum(programs[0].buffers))


def _values(
    entries: Sequence[Entry],
    programs: Sequence[PageProgram],
    plans: Sequence[Mapping[str, BoundStep]],
    names: Callable[[Any], str],
    weights: str,
) -> tuple[dict[str, Array], Json, dict[str, Array]]:
    """The tensors of the weights' file, what model.json says of values, and the arrays of the check's file."""
    values = paged.state_of([step for steps in plans for step in steps.values()])
    constants = {n: a for p in programs for n, a in p.constants.items()}
    as_they_are = constants.keys() | {n for p in programs for n in p.written}
    arrays = {names(t): a for t, a in values.values()} | constants
    if weights == VISITOR:
        paged.put_back(values)
        wanted = {n: list(a.shape) for n, a in arrays.items() if n not in as_they_are}
        return {n: arrays[n] for n in as_they_are}, {"forms": {}, "check": {}, "wanted": wanted}, {}
    file, forms = stored(arrays, as_they_are, weights)
    rounded = loaded(file, forms)
    computed = {n: (t, rounded[names(t)] if names(t) in forms else a) for n, (t, a) in values.items()}
    try:
        check, examples = _checks(entries, plans, computed)
    finally:
        paged.put_back(values)
    return file, {"forms": forms, "check": check, "wanted": {}}, examples


class Names:
    """The names of tensors: those that the functions reach them by, and numbers for the others. `known` are the
    tensors."""

    def __init__(self, functions: Sequence[Function]) -> None:
        self._known: dict[int, str] = {}
        self.known = []  # an id names an object while that lives
        for f in functions:
            for name, t in named_tensors(f.function if isinstance(f, Jit) else f).items():
                if id(t) not in self._known:
                    taken = name in self._known.values()
                    self._known[id(t)] = f"{name}.{len(self._known)}" if taken else name
                    self.known.append(t)

    def __call__(self, t: Any) -> str:
        if id(t) not in self._known:
            self._known[id(t)] = f"tensor.{len(self._known)}"
            self.known.append(t)
        return self._known[id(t)]


def programs_of(
    entries: Sequence[Entry], profiles: Sequence[DeviceProfile], names: Names
) -> tuple[list[PageProgram], list[dict[str, BoundStep]]]:
    """The program of each profile, and the captured calls that they are made of: profiles that fuse alike share those.

    State is as it was before, unless gradients are taken: an optimiser has made its own meanwhile.
    """
    if not profiles:
        raise UserError("export: there is no profile; the plainest is 'browser'")
    before = {} if any(e.gradients for e in entries) else paged.values_of(names.known)
    pack: list[str] = []
    programs = []
    plans = {}
    for p in profiles:
        if p.cost_model not in plans:
            plans[p.cost_model] = {e.name: _captured(e, p) for e in told(entries, "capturing functions")}
        program = PageProgram(p, pack, names, list(plans).index(p.cost_model))
        for entry in entries:
            step = plans[p.cost_model][entry.name]
            program.add(entry.name, step, entry.inputs, _results(entry, step))
        programs.append(program)
    paged.put_back({n: v for n, v in before.items() if names(v[0]) in programs[0].written})
    return programs, list(plans.values())


def entries_of(function: Any, example: Any, train: bool | Collection[str]) -> list[Entry]:
    """The functions with their examples, checked."""
    functions = dict(function) if isinstance(function, Mapping) else {"run": function}
    examples = example if isinstance(function, Mapping) else {"run": example}
    if not functions or not isinstance(examples, Mapping) or set(functions) != set(examples):
        raise UserError("export: several functions are a dict by name, and example_args one of the same names")
    gradients = set(functions) if train is True else set(train or ())
    if not gradients <= set(functions):
        raise UserError(f"export: train names {', '.join(sorted(gradients - set(functions)))}, which is no function")
    out = []
    for name, f in functions.items():
        if not callable(f):
            raise UserError(f"export: {name} is a {type(f).__name__}, not a function of tensors")
        inner = f.function if isinstance(f, Jit) else f
        args = examples[name] if isinstance(examples[name], tuple) else (examples[name],)
        out.append(Entry(name, inner, args, _inputs(inner, args), name in gradients))
    return out


def _inputs(function: Function, args: tuple[Any, ...]) -> list[tuple[str, Tensor]]:
    """The tensors of the arguments, named after the function's parameters."""
    try:
        bound = inspect.signature(getattr(function, "forward", function)).bind(*args)
    except TypeError as e:
        raise UserError(f"export: the example's arguments do not fit the function: {e}") from None
    named = []
    for name, value in bound.arguments.items():
        several = bound.signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
        named += [(f"{name}{n}", v) for n, v in enumerate(value)] if several else [(name, value)]
    out = []
    for name, value in named:
        for where, leaf in zip(paths_of(value, name), tree_leaves(value), strict=True):
            if isinstance(leaf, Tensor):
                out.append((where, leaf))
            elif not isinstance(leaf, (UOp, int, float, bool, str, type(None))):
                raise UserError(f"export: {where} is a {type(leaf).__name__}; give a Tensor: Tensor(array)")
    return out


def _captured(entry: Entry, wanted: DeviceProfile) -> BoundStep:
    device = get_device(entry.inputs[0][1].device if entry.inputs else default_device())
    with planned_for(device, wanted):
        step: BoundStep = entry.call(lambda: bound_step(entry.function, entry.args))
    return step


def _results(entry: Entry, step: BoundStep) -> list[str]:
    paths = zip(paths_of(step.result, "out"), tree_leaves(step.result), strict=True)
    found = [path for path, leaf in paths if isinstance(leaf, Tensor)]
    if not found:
        raise UserError(f"export: {entry.name} gives no tensor; return what the page is to show")
    return found


def _checks(
    entries: Sequence[Entry], plans: Sequence[Mapping[str, BoundStep]], values: paged.Values
) -> tuple[Json, dict[str, Array]]:
    """The values that a page compares its own with: numbers for model.json, and arrays by name."""
    check = {}
    arrays: dict[str, Array] = {}
    for entry in told(entries, "comparing values"):
        tensors = [t for _, t in entry.inputs]
        arrays |= {f"{entry.name}/in/{n}": t.numpy() for n, t in entry.inputs}
        verdicts = [paged.judged(steps[entry.name], values, tensors, error_bounds) for steps in plans]
        found = entry.call(partial(paged.expected, entry.function, entry.args, values))
        names = _results(entry, plans[0][entry.name])
        arrays |= {f"{entry.name}/out/{n}": a for n, a in zip(names, found, strict=True)}
        check[entry.name] = {"bounds": [b for _, b in verdicts], "calls": [c for c, _ in verdicts]}
    return check, arrays


@frozen
class Fit:
    """The fate of functions under a profile.

    `why` is empty where they fit; else the other numbers are 0. `memory` is all that a page holds on the GPU, and at
    the same time the most, since a page takes it all when it opens: `weights` of it are tensors, `working` what is
    computed on the way. `split` names the kernels that see a tensor in several bindings.
    """

    profile: str
    why: str = ""
    memory: int = 0
    weights: int = 0
    working: int = 0
    largest: int = 0
    kernels: int = 0
    launches: int = 0
    split: Texts = ()

    def __str__(self) -> str:
        if self.why:
            return f"{self.profile}: does not fit: {self.why}"
        split = f"; split over several bindings: {', '.join(self.split)}" if self.split else "; nothing is split"
        return (
            f"{self.profile}: fits in {self.memory:,} bytes ({self.weights:,} of tensors, {self.working:,} on the way; "
            f"the largest buffer has {self.largest:,}), {self.kernels} kernels, {self.launches} launches{split}"
        )


def fit(
    function: Callable[..., Any] | Mapping[str, Callable[..., Any]],
    example_args: Any,
    name: str = "browser",
    train: bool | Collection[str] = False,
) -> Fit:
    """The fate of a page of `function` under a profile: whether it fits, what is split, the memory that it takes.

    Args:
        function: as `export` takes it. example_args: its arguments. train: whether gradients are taken inside.
        name: the name of the profile, one of `PROFILES`.

    >>> from anneal import nn
    >>> from anneal.tensor import Tensor
    >>> print(fit(nn.Linear(3, 2), Tensor.ones(4, 3)))
    browser: fits in 128 bytes (48 of tensors, 32 on the way; the largest buffer has 48), 1 kernels, 1 launches; \
nothing is split
    """
    entries = entries_of(function, example_args, train)
    try:
        (program,), _ = programs_of(entries, [profile(name)], Names([e.function for e in entries]))
    except UserError as e:
        if not str(e).startswith("export: "):
            raise
        return Fit(name, str(e).removeprefix("export: "))
    sizes = program.buffers
    split = [k["name"] for k in program.kernels if len(k["bindings"]) > len({b[1] for b in k["bindings"]})]
    launches = sum(len(f["calls"]) for f in program.functions.values())
    weights, working = (sum(sizes[n] for n in of) for of in (set(program.weights.values()), program.scratch))
    return Fit(name, "", sum(sizes), weights, working, max(sizes), len(program.kernels), launches, tuple(split))
