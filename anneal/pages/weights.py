"""Weights as a page fetches them: a safetensors file in which large matrices may be halves, or bytes with scales."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from anneal.backend import Array
from anneal.errors import SettingError

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
