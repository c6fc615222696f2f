"""States that older versions of torch saved, and what `load_state_dict` says of names, as torch 2.13 does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from anneal import nn
from anneal.errors import DataError
from anneal.nn.utils.parametrizations import weight_norm
from anneal.tensor import Tensor


class State(dict[str, Any]):
    """A state with the versions of its modules, as torch's has them."""

    def __init__(self, values: Any, version: int) -> None:
        super().__init__(values)
        self._metadata = {"": {"version": version}}


@pytest.mark.parametrize("make", [nn.BatchNorm1d, lambda n: nn.InstanceNorm1d(n, track_running_stats=True)])
def test_a_norm_that_counted_no_batches_keeps_its_count(make: Any) -> None:
    state = {k: v for k, v in make(2).state_dict().items() if k != "num_batches_tracked"}
    for given in (state, State(state, 1)):
        norm = make(2)
        norm.num_batches_tracked.assign(3)
        keys = norm.load_state_dict(given)
        assert (*keys, norm.num_batches_tracked.item()) == ([], [], 3)
    with pytest.raises(DataError, match="missing: num_batches_tracked"):
        make(2).load_state_dict(State(state, 2))
    with pytest.raises(DataError, match=r"missing: 0\.running_var"):
        nn.Sequential(make(2)).load_state_dict({f"0.{k}": v for k, v in state.items() if k != "running_var"})


@pytest.mark.parametrize("below", [False, True])
def test_lengths_and_directions_of_the_older_weight_norm(below: bool) -> None:
    layer = weight_norm(nn.Linear(2, 3))
    whole, at = (nn.Sequential(layer), "0.") if below else (layer, "")
    state = {"bias": np.zeros(3), "weight_g": np.full((3, 1), 2.0), "weight_v": np.ones((3, 2))}
    assert [*whole.load_state_dict({at + k: v for k, v in state.items()})] == [[], []]
    np.testing.assert_allclose(layer.weight.detach().numpy(), np.full((3, 2), 2**0.5), rtol=1e-6)
    again = whole.state_dict()
    assert list(again) == [at + k for k in ("bias", *(f"parametrizations.weight.original{n}" for n in range(2)))]
    assert [*whole.load_state_dict(again)] == [[], []]
    half = whole.load_state_dict({f"{at}bias": np.zeros(3), f"{at}weight_g": np.ones((3, 1))}, strict=False)
    assert [*half] == [[f"{at}parametrizations.weight.original{n}" for n in range(2)], [f"{at}weight_g"]]


def test_names_come_module_by_module() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            self.register_buffer("b", Tensor.zeros(1))
            self.w = nn.Parameter([0.0])
            self.sub = nn.Linear(1, 1)
            self.register_buffer("c", Tensor.zeros(1))
            self.v = nn.Parameter([0.0])
            self.register_buffer("passing", Tensor.zeros(1), persistent=False)

    others = ["passing", "sub.weight.y", "sub.x", "x.y", "subs.a", "zz"]
    missing, unexpected = Mixed().load_state_dict(dict.fromkeys(others, np.zeros(1)), strict=False)
    assert missing == ["w", "v", "b", "c", "sub.weight", "sub.bias"]
    assert unexpected == ["passing", "x.y", "subs.a", "zz", "sub.weight.y", "sub.x"]
