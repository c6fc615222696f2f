"""Attributes of one's own on parameters, as torch's programs set them."""

from __future__ import annotations

import copy
import pickle
from typing import Any

from anneal import nn, optim
from anneal.tensor import Tensor


def test_a_parameter_takes_attributes() -> None:
    p: Any = nn.Parameter(Tensor.ones(2))
    p.no_weight_decay, p.group = True, "head"
    assert (p.no_weight_decay, p.group, hasattr(p * 1, "group")) == (True, "head", False)
    # as in torch: a deep copy is a new parameter, the others keep them
    kept = [hasattr(q, "group") for q in (copy.copy(p), pickle.loads(pickle.dumps(p)), copy.deepcopy(p))]
    assert kept == [True, True, False]


def test_a_step_trains_parameters_by_their_attributes() -> None:
    net: Any = nn.Linear(2, 1)
    net.bias.is_shared = True
    rest = [p for p in net.parameters() if getattr(p, "is_shared", False) is not True]
    before = net.bias.tolist()
    net(Tensor.ones(1, 2)).sum().backward()
    optim.SGD(rest, lr=0.1).step()
    assert (len(rest), net.bias.tolist()) == (1, before)
