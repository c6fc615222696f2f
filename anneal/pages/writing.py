"""The files of a page: a folder, or one HTML file with all of them in it."""

from __future__ import annotations

import base64
import hashlib
import html
import io
import json
import os
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from anneal import files
from anneal.backend import Array
from anneal.errors import DataError, SettingError, UserError
from anneal.progress import told
from anneal.tensor import io as tensor_files

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
    model: dict[str, Any],
    pack: Sequence[str],
    weights: Mapping[str, Array],
    examples: Mapping[str, Array],
    data: Mapping[str, Array],
    single: bool,
) -> dict[str, int]:
    """Write the page; the bytes of each file. Raises DataError where that cannot be done."""
    model["zeros"] = {n: [_KINDS[a.dtype.name], list(a.shape)] for n, a in weights.items() if _is_blank(a)}
    weights = {n: a for n, a in weights.items() if n not in model["zeros"]}
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


def _is_blank(array: Array) -> bool:
    """True for what a page can make itself: zeros, as state begins with."""
    return array.dtype.name in _KINDS and array.size > 0 and not array.any()


def _packed(arrays: Mapping[str, Array]) -> bytes:
    out = io.BytesIO()
    tensor_files.safe_save({n: a.astype(np.uint32) if a.dtype == np.bool_ else a for n, a in arrays.items()}, out)
    return out.getvalue()


def _digest(data: bytes) -> str:
    return base64.b64encode(hashlib.sha256(data).digest()).decode()


def _hashes(data: bytes) -> list[str]:
    return [_digest(data[at : at + PIECE]) for at in range(0, max(1, len(data)), PIECE)]


def _write_all(contents: Mapping[Path, bytes]) -> dict[str, int]:
    for path, data in told(contents.items(), "writing files", len(contents)):
        try:
            files.replace(path, partial(_put, data))
        except OSError as e:
            raise DataError(f"export: cannot write {path}: {e.strerror or e}") from e
    return {path.name: len(data) for path, data in contents.items()}


def _put(data: bytes, file: IO[bytes]) -> None:
    file.write(data)


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


def stored(
    arrays: Mapping[str, Array], as_they_are: Collection[str], form: str
) -> tuple[dict[str, Array], dict[str, str]]:
    """The arrays of the file, and of those that are not held as they are used the form.

    Args:
        arrays: the tensors by name.
        as_they_are: the names of those that are not rounded: state, constants.
        form: one of `FORMATS`.

    Raises SettingError for another form.
    """
    if form not in FORMATS:
        raise SettingError(f"export: weights are {', '.join(FORMATS)}, not {form!r}")
    out: dict[str, Array] = {}
    forms: dict[str, str] = {}
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


def loaded(file: Mapping[str, Array], forms: Mapping[str, str]) -> dict[str, Array]:
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
            scale = file[name + SCALES].reshape(-1, *[1] * (out[name].ndim - 1))
            out[name] *= scale
    return out
