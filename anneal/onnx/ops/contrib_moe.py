"""com.microsoft: mixtures of experts. Every expert computes every row, and the rows of those that a router did not
choose count nothing: shapes stay fixed, and there is no host in between.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from anneal.onnx.execute import Call
from anneal.onnx.ops._values import Array
from anneal.onnx.ops.contrib import MICROSOFT, unpacked
from anneal.onnx.registry import op
from anneal.tensor import Tensor, dtypes

__all__: list[str] = []


def _routed(node: Call, router: Tensor, k: int, normalise: int) -> Tensor:
    """(rows, experts): the weight of each expert, 0 but for the k with the largest scores."""
    scores = router.float()
    experts = scores.shape[1]
    if not 0 < k <= experts:
        raise node.fail(f"k is {k}, of {experts} experts")
    _, place = scores.topk(k, 1)
    every = node.constant(np.arange(experts, dtype=np.int32).reshape(1, 1, -1))
    hits: Any = place.cast(dtypes.int32).unsqueeze(-1) == every
    chosen = hits.any(1)
    out: Tensor = chosen.where(scores, -np.inf).softmax(1) if normalise else chosen.where(scores.softmax(1), 0.0)
    return out


def _gated(node: Call, h: Tensor, other: Tensor | None, a: dict[str, Any]) -> Tensor:
    """The activation of the first product; of swiglu with the gate beside it, or in every second column."""
    kind = a["activation_type"]
    if kind == "swiglu":
        fusion = a["swiglu_fusion"]
        if fusion == 1:
            gate, line = h[..., 0::2], h[..., 1::2]
        elif fusion == 2:
            half = h.shape[-1] // 2
            gate, line = h[..., :half], h[..., half:]
        elif other is not None:
            gate, line = h, other
        else:
            raise node.fail("swiglu_fusion=0 without weights of fc3")
        if a["swiglu_limit"] is not None:
            limit = a["swiglu_limit"]
            gate, line = gate.clamp(None, limit), line.clamp(-limit, limit)
        out: Tensor = gate * (gate * a["activation_alpha"]).sigmoid() * (line + a["activation_beta"])
        return out
    functions: dict[str, Callable[[], Tensor]] = {
        "relu": h.relu,
        "gelu": lambda: h.gelu("tanh"),
        "silu": h.silu,
        "identity": lambda: h,
    }
    if kind not in functions:
        raise node.fail(f"activation_type is swiglu, {', '.join(functions)}, not {kind!r}")
    y = functions[kind]()
    return y if other is None else y * other


def _mixed(
    node: Call, x: Tensor, router: Tensor, layers: list[tuple[Tensor, Tensor | None] | None], a: dict[str, Any]
) -> Tensor:
    """The experts' results, weighted; a layer is (experts, out, in) weights and (experts, out) biases."""
    if a["use_sparse_mixer"]:
        raise node.fail("use_sparse_mixer=1 is not computed")
    rows = x.reshape(1, -1, x.shape[-1])

    def through(h: Tensor, layer: tuple[Tensor, Tensor | None] | None) -> Tensor | None:
        if layer is None:
            return None
        y = h.matmul(layer[0].mT)
        return y if layer[1] is None else y + layer[1].unsqueeze(1)

    first = through(rows, layers[0])
    assert first is not None
    y = through(_gated(node, first, through(rows, layers[2]), a), layers[1])
    assert y is not None
    weights = _routed(node, router, a["k"], a["normalize_routing_weights"])
    return (y * weights.T.unsqueeze(-1).cast(y.dtype)).sum(0).reshape(*x.shape)


@op("MoE", domain=MICROSOFT)
def moe(
    node: Call,
    x: Tensor,
    router: Tensor,
    w1: Tensor,
    b1: Tensor | None,
    w2: Tensor,
    b2: Tensor | None = None,
    w3: Tensor | None = None,
    b3: Tensor | None = None,
    *,
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    activation_type: str = "relu",
    k: int = 1,
    normalize_routing_weights: int = 0,
    swiglu_fusion: int = 0,
    swiglu_limit: float | None = None,
    use_sparse_mixer: int = 0,
) -> Tensor:
    """The results of the k experts with the largest scores for each row, weighted by softmax over all scores, or over
    those of the k.
    """
    a = {
        "activation_alpha": activation_alpha,
        "activation_beta": activation_beta,
        "activation_type": activation_type,
        "k": k,
        "normalize_routing_weights": normalize_routing_weights,
        "swiglu_fusion": swiglu_fusion,
        "swiglu_limit": swiglu_limit,
        "use_sparse_mixer": use_sparse_mixer,
    }
    return _mixed(node, x, router, [(w1, b1), (w2, b2), None if w3 is None else (w3, b3)], a)


_PACKED = ("w1", "s1", "w2", "s2", "w3", "s3", "z1", "z2", "z3")


@op("QMoE", domain=MICROSOFT, values=_PACKED)
def qmoe(
    node: Call,
    x: Tensor,
    router: Tensor,
    w1: Array,
    s1: Array | None,
    b1: Tensor | None,
    w2: Array,
    s2: Array | None,
    b2: Tensor | None = None,
    w3: Array | None = None,
    s3: Array | None = None,
    b3: Tensor | None = None,
    z1: Array | None = None,
    z2: Array | None = None,
    z3: Array | None = None,
    router_weights: Tensor | None = None,
    *,
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    activation_type: str = "relu",
    accuracy_level: int = 0,
    block_size: int = 0,
    expert_weight_bits: int = 4,
    k: int = 1,
    normalize_routing_weights: int = 0,
    quant_type: str = "int",
    swiglu_fusion: int = 0,
    swiglu_limit: float | None = None,
    use_sparse_mixer: int = 0,
    weights_prepacked: int = -1,
) -> Tensor:
    """MoE with weights of 4 or 8 bits, a scale for each row or for each block of it; unpacked once, on the host.

    `accuracy_level` would allow less precision; it is not used.
    """
    if quant_type != "int" or expert_weight_bits not in (4, 8) or weights_prepacked > 0 or router_weights is not None:
        raise node.fail(
            f"{expert_weight_bits} bits of {quant_type!r}; integers of 4 and 8 bits, not packed again, are read"
        )
    layers: list[tuple[Tensor, Tensor | None] | None] = []
    for w, s, z, b in ((w1, s1, z1, b1), (w2, s2, z2, b2), (w3, s3, z3, b3)):
        if w is None or s is None:
            layers.append(None)
            continue
        made = node.constant(
            lambda w=w, s=s, z=z: _weights(w, s, z, expert_weight_bits, block_size).astype(x.dtype.name), (w, s, z)
        )
        layers.append((made, b))
    a = {
        "activation_alpha": activation_alpha,
        "activation_beta": activation_beta,
        "activation_type": activation_type,
        "k": k,
        "normalize_routing_weights": normalize_routing_weights,
        "swiglu_fusion": swiglu_fusion,
        "swiglu_limit": swiglu_limit,
        "use_sparse_mixer": use_sparse_mixer,
    }
    return _mixed(node, x, router, layers, a)


def _weights(packed: Array, scales: Array, zeros: Array | None, bits: int, block: int) -> Array:
    """(experts, out, in) float32 numbers."""
    steps = unpacked(packed, bits).astype(np.float32)
    each = scales.astype(np.float32)
    each = each[..., None] if each.ndim == 2 else each
    blocks = (
        np.minimum(np.arange(steps.shape[-1]) // max(block, 1), each.shape[-1] - 1) if block else [0] * steps.shape[-1]
    )
    centre: Any = np.float32(1 << (bits - 1))
    if zeros is not None:
        known = unpacked(zeros.reshape(*zeros.shape[:2], -1), bits).astype(np.float32)
        centre = known[..., blocks]
    return np.asarray((steps - centre) * each[..., blocks])
