"""JAX, one jitted operation at a time; the host's clock around batches, so very small work shows the cost of a call."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax

from benchmarks._harness import Run

Array = npt.NDArray[Any]
jax.config.update("jax_default_matmul_precision", "float32")


class Kernels:
    """The contestant `jax`."""

    details: ClassVar[dict[str, Any]] = {}

    def __init__(self, device: str) -> None:
        if device == "cpu":
            jax.config.update("jax_platforms", "cpu")

    @property
    def about(self) -> dict[str, Any]:
        return {"device": f"{jax.default_backend()} {jax.devices()[0].device_kind}"}

    def product(self, a: Array, b: Array, ta: bool, tb: bool) -> tuple[Run, Callable[[], Array]]:
        def f(x: Any, y: Any) -> Any:
            return jnp.matmul(x.swapaxes(-1, -2) if ta else x, y.swapaxes(-1, -2) if tb else y)

        run, results = _bound(f, a, b)
        return run, lambda: results()[0]

    def convolution(self, x: Array, w: Array) -> tuple[Run, Callable[[], Array]]:
        run, results = _bound(lambda x, w: jax.lax.conv(x, w, (1, 1), "SAME"), x, w)
        return run, lambda: results()[0]

    def memory(self, op: str, arrays: Sequence[Array]) -> tuple[Run, Callable[[], list[Array]]]:
        """One of `benchmarks.memory_bound`'s operations."""
        if op == "AdamW":
            return _adamw(*arrays)
        return _bound(WORK[op], *arrays)


def _bound(f: Callable[..., Any], *arrays: Array) -> tuple[Run, Callable[[], list[Array]]]:
    inputs = [jax.device_put(a) for a in arrays]
    compiled = jax.jit(f)

    def run(count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            out = compiled(*inputs)
        jax.block_until_ready(out)
        return time.perf_counter() - start

    return run, lambda: [np.asarray(r) for r in jax.tree_util.tree_leaves(compiled(*inputs))]


def _adamw(p: Array, g: Array) -> tuple[Run, Callable[[], list[Array]]]:
    optimiser = optax.adamw(1e-3, b1=0.9, b2=0.99, weight_decay=0.1)

    def step(p: Any, state: Any, g: Any) -> Any:
        updates, state = optimiser.update(g, state, p)
        return optax.apply_updates(p, updates), state

    state = [*jax.jit(step)(jax.device_put(p), optimiser.init(jax.device_put(p)), jax.device_put(g)), jax.device_put(g)]
    compiled = jax.jit(step, donate_argnums=(0, 1))

    def run(count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            state[:2] = compiled(*state)
        jax.block_until_ready(state[0])
        return time.perf_counter() - start

    def results() -> list[Array]:
        run(1)
        return [np.asarray(state[0])]

    return run, results


def _softmax(x: Any) -> Any:
    return jax.nn.softmax(x, -1)


def _gelu(x: Any) -> Any:
    return jax.nn.gelu(x, approximate=True)


def _layer_norm(x: Any, w: Any, b: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * w + b


def _rms_norm(x: Any, w: Any) -> Any:
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w


def _cross_entropy(x: Any, t: Any) -> Any:
    return optax.softmax_cross_entropy_with_integer_labels(x, t).mean()


def _pull(f: Callable[..., Any]) -> Callable[..., Any]:
    """The gradients of `f`; the gradient of its result is the last argument."""
    return lambda *args: jax.vjp(f, *args[:-1])[1](args[-1])


WORK: dict[str, Callable[..., Any]] = {
    "copy": lambda x: x * 1.5,
    "gelu": _gelu,
    "gelu backward": _pull(_gelu),
    "softmax": _softmax,
    "softmax backward": _pull(_softmax),
    "layer norm": _layer_norm,
    "layer norm backward": _pull(_layer_norm),
    "rms norm": _rms_norm,
    "rms norm backward": _pull(_rms_norm),
    "cross-entropy": _cross_entropy,
    "cross-entropy and gradient": jax.value_and_grad(_cross_entropy),
    "sum": jnp.sum,
    "column sum": lambda x: x.sum(0),
    "transpose": lambda x: x.T,
}
