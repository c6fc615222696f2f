"""Gradients at edges beside torch's, by the table of `edge_gradients.py`: on the cpu all, thinned on WebGPU."""

from __future__ import annotations

import json
import re
import warnings
from typing import Any

import numpy as np
import pytest

import anneal as an
from tests.tensor import edge_gradients
from tests.tiers import thinned

TABLE = json.loads(edge_gradients.TABLE.read_text())["rows"]
PLACE = "of equal elements another place is chosen: torch's order is no promise"
POLE = "a pole, where torch's is the rounding of pi"
SIZE = "the size of an infinity has the slope 1, torch's formula divides two infinities"
LOG = "0 * log(0) is 0, and so is its gradient (LIMITATIONS.md)"
CLAMPED = "the logarithm's bound of -100 holds for the gradient of the target too"
# Rows by a pattern, which are not compared.
OURS = {
    r".*(mode|kthvalue|topk|quantile)\(": PLACE,
    r"points: T.digamma|points: x.polygamma": POLE,
    r".*xlog[1y]": LOG,
    r"unit: F.(binary_cross_entropy\(|kl_div\(x, y, reduction=\"none\"\)|poisson)": CLAMPED,
    r"points: T.special.log_ndtr": "torch's is off by 2e-4 at -100",
    r"points: x\*\*(-0.5|1.5)": "roots of -inf and of -0.0 are those of sqrt and rsqrt",
    r"points: x.mvlgamma": "a pole, of which torch's has the sign of -0.0",
    r"(rows|wild): x.norm\(0": "torch has no gradient, this is zero",
    r"(rows|wild): (T.cdist|x.renorm)": "a row with nan",
}
ROWS = [
    (w, t) for w, t in edge_gradients.CASES if f"{w}: {t}" in TABLE and not any(re.match(p, f"{w}: {t}") for p in OURS)
]
# Compared where torch gives a number and the elements are finite.
NUMBERS = r"""
.*copysign|.*atan2|(rows|wild): .*(amax|amin|x.max\(\)|x.min\(\)|aminmax|x.prod|x.var|cumprod|cosine|index_reduce|scatter)
points: T.special.i1|points: F.hardswish|points: x \* x.sign|pairs: x.clamp\(y, y
""".replace("\n", "|").strip("|")


def _same(which: str, found: list[Any], wanted: list[Any], numbers: bool, rtol: float) -> None:
    for n, (g, w) in enumerate(zip(found, wanted, strict=True)):
        assert (g is None) is (w is None)
        if w is None:
            continue
        a, b = np.array(g, np.float64), np.array(w, np.float64)
        assert a.shape == b.shape
        if numbers:
            values = [np.array(v, np.float64).reshape(-1) for v in edge_gradients.INPUTS[which]]
            kept = np.isfinite(b) & np.all([np.isfinite(v) for v in values if v.shape == b.shape], axis=0)
            a, b = a[kept], b[kept]
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol / 100, err_msg=f"argument {n}")


@pytest.mark.parametrize(("which", "text"), ROWS, ids=[f"{w}: {t}" for w, t in ROWS])
def test_gradients_at_edges_are_torchs(which: str, text: str) -> None:
    name = f"{which}: {text}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = edge_gradients.gradients(an, which, text)
    _same(which, found, TABLE[name], re.match(NUMBERS, name) is not None, 2e-4)


# Rows whose infinities and nans no GPU promises are left out; the rules themselves are those of the cpu.
_ON_GPU = [
    (w, t)
    for w, t in ROWS
    if w in ("ties", "square", "line", "loss", "scores", "vectors", "signs", "places", "empty", "none")
]


@pytest.mark.parametrize("row", thinned(_ON_GPU, test=8, ci=4))
def test_gradients_at_edges_on_webgpu(row: tuple[str, str], webgpu: str) -> None:
    which, text = row
    name = f"{which}: {text}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        an.set_default_device(webgpu)
        try:
            found = edge_gradients.gradients(an, which, text)
        finally:
            an.set_default_device(None)
    _same(which, found, TABLE[name], False, 1e-3)


def test_each_exception_is_of_rows_that_are_there() -> None:
    for pattern in OURS:
        assert any(re.match(pattern, name) for name in TABLE), pattern
