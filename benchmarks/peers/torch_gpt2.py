"""PyTorch: GPT-2 from a checkpoint, hand-written with a static cache (eager, or `torch.compile` with CUDA graphs), and
transformers' `generate`; f32, TF32 off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

HEADS, LAYERS, WIDTH, CONTEXT = 12, 12, 768, 1024
STEP = 256  # a text longer than so many tokens is compiled anew


def _attribute(name: str) -> str:
    return "weight_of_" + name.replace(".", "_")


class GPT2(torch.nn.Module):
    """The published sizes; weights as the file has them, (inputs, outputs)."""

    def __init__(self, folder: Path, device: str) -> None:
        super().__init__()
        # buffers, whose addresses a CUDA graph may rely on
        for name, t in load_file(folder / "model.safetensors", device).items():
            self.register_buffer(_attribute(name.removeprefix("transformer.")), t)
        shape = (LAYERS, HEADS, CONTEXT, WIDTH // HEADS)
        self.register_buffer("keys", torch.zeros(shape, device=device))
        self.register_buffer("values", torch.zeros(shape, device=device))
        self.register_buffer("places", torch.arange(CONTEXT, device=device))
        self.length = CONTEXT  # keys that `forward` looks at: as few as the text needs, in steps

    def w(self, name: str) -> torch.Tensor:
        found: torch.Tensor = getattr(self, _attribute(name))
        return found

    def norm(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (WIDTH,), self.w(f"{name}.weight"), self.w(f"{name}.bias"))

    def linear(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return torch.addmm(self.w(f"{name}.bias"), x, self.w(f"{name}.weight"))

    def block(self, i: int, x: torch.Tensor, attend: Any) -> torch.Tensor:
        q, k, v = (
            t.view(-1, HEADS, WIDTH // HEADS).transpose(0, 1)
            for t in self.linear(f"h.{i}.attn.c_attn", self.norm(f"h.{i}.ln_1", x)).split(WIDTH, 1)
        )
        y = attend(i, q, k, v).transpose(0, 1).reshape(-1, WIDTH)
        x = x + self.linear(f"h.{i}.attn.c_proj", y)
        y = F.gelu(self.linear(f"h.{i}.mlp.c_fc", self.norm(f"h.{i}.ln_2", x)), approximate="tanh")
        return x + self.linear(f"h.{i}.mlp.c_proj", y)

    def prefill(self, tokens: torch.Tensor) -> torch.Tensor:
        """Read a prompt (time,); the likeliest next token, (1,)."""

        def attend(i: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            self.keys[i, :, : k.shape[1]], self.values[i, :, : k.shape[1]] = k, v
            return F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]

        x = self.w("wte.weight")[tokens] + self.w("wpe.weight")[: len(tokens)]
        for i in range(LAYERS):
            x = self.block(i, x, attend)
        return (self.norm("ln_f", x[-1:]) @ self.w("wte.weight").T).argmax(-1)

    def forward(self, token: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
        """One token more, (1,), at a place, (1,): with shapes that never change, as graphs want them."""

        def attend(i: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            self.keys[i].index_copy_(1, place, k)
            self.values[i].index_copy_(1, place, v)
            n = self.length
            seen = (self.places[:n] <= place).view(1, 1, 1, -1)
            keys, values = self.keys[i, None, :, :n], self.values[i, None, :, :n]
            return F.scaled_dot_product_attention(q[None], keys, values, attn_mask=seen)[0]

        return self._decode(token, self.w("wpe.weight")[place], attend)

    def eager(self, token: torch.Tensor, place: int) -> torch.Tensor:
        """The same without graphs: only the keys that there are."""

        def attend(i: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            self.keys[i, :, place : place + 1], self.values[i, :, place : place + 1] = k, v
            return F.scaled_dot_product_attention(
                q[None], self.keys[i, None, :, : place + 1], self.values[i, None, :, : place + 1]
            )[0]

        return self._decode(token, self.w("wpe.weight")[place : place + 1], attend)

    def _decode(self, token: torch.Tensor, position: torch.Tensor, attend: Any) -> torch.Tensor:
        x = self.w("wte.weight")[token] + position
        for i in range(LAYERS):
            x = self.block(i, x, attend)
        return (self.norm("ln_f", x) @ self.w("wte.weight").T).argmax(-1)


class Contestant:
    """`prefill(tokens)`, then `decode(count)`: greedy; `wait()`."""

    def __init__(self, folder: Path, device: str, mode: str) -> None:
        self.device = "cuda" if device == "webgpu" and torch.cuda.is_available() else "cpu"
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.set_float32_matmul_precision("highest")
        torch.set_grad_enabled(False)
        self.mode, self.place = mode, 0
        if mode == "transformers":
            from transformers import GPT2LMHeadModel

            self.model: Any = GPT2LMHeadModel.from_pretrained(folder, dtype=torch.float32).eval().to(self.device)
        else:
            self.model = GPT2(folder, self.device)
            self.graph = torch.compile(self.model, mode="reduce-overhead") if mode == "compile" else None

    @property
    def about(self) -> dict[str, Any]:
        return {
            "device": torch.cuda.get_device_name()
            if self.device == "cuda"
            else f"cpu, {torch.get_num_threads()} threads"
        }

    def prefill(self, tokens: list[int]) -> None:
        given = torch.tensor(tokens, device=self.device)
        self.place = len(tokens)
        if self.mode == "transformers":
            self.given = given[None]
            self.token = self.model(self.given, logits_to_keep=1).logits[0].argmax(-1)
        else:
            self.token = self.model.prefill(given)

    def decode(self, count: int) -> None:
        if self.mode == "transformers":
            self.model.generate(self.given, max_new_tokens=count, min_new_tokens=count, do_sample=False, pad_token_id=0)
            return
        if self.graph is not None:
            self.model.length = min(CONTEXT, -(-(self.place + count) // STEP) * STEP)
            place = torch.tensor([self.place], device=self.device)
            for _ in range(count):
                self.token = self.graph(self.token, place).clone()
                place += 1
        else:
            for n in range(count):
                self.token = self.model.eager(self.token, self.place + n)
        self.place += count

    def wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()
