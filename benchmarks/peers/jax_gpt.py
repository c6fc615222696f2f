"""JAX with optax, the whole step under one `jit`; f32 at the highest precision."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax

from benchmarks._harness import Config

jax.config.update("jax_default_matmul_precision", "float32")


def init(c: Config) -> dict[str, Any]:
    keys = iter(jax.random.split(jax.random.PRNGKey(0), 2 + 4 * c.layers))

    def normal(*shape: int) -> jax.Array:
        return 0.02 * jax.random.normal(next(keys), shape)

    def linear(inputs: int, outputs: int) -> dict[str, jax.Array]:
        return {"w": normal(inputs, outputs), "b": jnp.zeros(outputs)}

    def norm() -> dict[str, jax.Array]:
        return {"g": jnp.ones(c.width), "b": jnp.zeros(c.width)}

    def block() -> dict[str, Any]:
        d = c.width
        return {
            "ln_1": norm(),
            "ln_2": norm(),
            "attn": linear(d, 3 * d),
            "proj": linear(d, d),
            "fc": linear(d, 4 * d),
            "mlp": linear(4 * d, d),
        }

    return {
        "wte": normal(c.vocab, c.width),
        "wpe": normal(c.context, c.width),
        "h": [block() for _ in range(c.layers)],
        "ln_f": norm(),
    }


def layer_norm(x: jax.Array, p: dict[str, jax.Array]) -> jax.Array:
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * p["g"] + p["b"]


def loss_of(params: dict[str, Any], tokens: jax.Array, targets: jax.Array, heads: int) -> jax.Array:
    batch, time = tokens.shape
    x = params["wte"][tokens] + params["wpe"][:time]
    width = x.shape[-1]
    mask = jnp.tril(jnp.ones((time, time), bool))
    for p in params["h"]:
        qkv = layer_norm(x, p["ln_1"]) @ p["attn"]["w"] + p["attn"]["b"]
        q, k, v = (t.reshape(batch, time, heads, -1).transpose(0, 2, 1, 3) for t in jnp.split(qkv, 3, -1))
        scores = jnp.einsum("bhtd,bhsd->bhts", q, k) / (width // heads) ** 0.5
        weights = jax.nn.softmax(jnp.where(mask, scores, -jnp.inf), -1)
        y = jnp.einsum("bhts,bhsd->bhtd", weights, v).transpose(0, 2, 1, 3).reshape(batch, time, width)
        x = x + y @ p["proj"]["w"] + p["proj"]["b"]
        hidden = jax.nn.gelu(layer_norm(x, p["ln_2"]) @ p["fc"]["w"] + p["fc"]["b"], approximate=True)
        x = x + hidden @ p["mlp"]["w"] + p["mlp"]["b"]
    logits = layer_norm(x, params["ln_f"]) @ params["wte"].T
    return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()


class Step:
    def __init__(self, config: Config, device: str, mode: str) -> None:
        if device == "cpu":
            jax.config.update("jax_platforms", "cpu")
        optimiser = optax.adamw(1e-3, b1=0.9, b2=0.99, weight_decay=0.1)
        self.params = init(config)
        self.state = optimiser.init(self.params)
        shape = (config.batch, config.context)
        self.x = jax.random.randint(jax.random.PRNGKey(1), shape, 0, config.vocab)
        self.y = jax.random.randint(jax.random.PRNGKey(2), shape, 0, config.vocab)

        def step(params: Any, state: Any, x: jax.Array, y: jax.Array) -> tuple[Any, Any, jax.Array]:
            loss, grads = jax.value_and_grad(loss_of)(params, x, y, config.heads)
            updates, state = optimiser.update(grads, state, params)
            return optax.apply_updates(params, updates), state, loss

        self.step = jax.jit(step, donate_argnums=(0, 1))

    @property
    def about(self) -> dict[str, Any]:
        params = sum(p.size for p in jax.tree_util.tree_leaves(self.params))
        return {"device": f"{jax.default_backend()} {jax.devices()[0].device_kind}", "params": params}

    def __call__(self) -> None:
        self.params, self.state, self.loss = self.step(self.params, self.state, self.x, self.y)

    def wait(self) -> None:
        self.loss.block_until_ready()

    def last_loss(self) -> float:
        return float(self.loss)
