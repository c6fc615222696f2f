"""Muon: steps that are orthogonal matrices."""

from __future__ import annotations

import math

from anneal.errors import SettingError
from anneal.optim._base import ParameterGroup, Parameters
from anneal.optim._formulas import Formula, States
from anneal.tensor import Tensor

__all__ = ["Muon"]


class Muon(Formula):
    """Muon (Jordan, 2024): the momentum of a matrix made orthogonal by Newton and Schulz's iteration, in float32.

    Args:
        params: matrices alone; give others to another optimiser. weight_decay: decoupled, as in `AdamW`.
        momentum: how much of the mean stays. nesterov: looks ahead by it. ns_coefficients, ns_steps: of the iteration.
        eps: the least norm. adjust_lr_fn: "original" or "match_rms_adamw", how the rate follows the matrix's shape.

    torch iterates in bfloat16, so its steps differ in the third digit. Raises SettingError for other than matrices.

    >>> w = Tensor([[1.0, 0.0]], requires_grad=True)
    >>> optimizer = Muon([w])
    >>> (w * w).sum().backward(); optimizer.step(); w[0, 0].item() < 1.0
    True
    """

    def __init__(
        self,
        params: Parameters,
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise SettingError(f'Muon: adjust_lr_fn is "original" or "match_rms_adamw", not {adjust_lr_fn!r}')
        if not 0 < ns_steps < 100:
            raise SettingError(f"Muon: ns_steps is a number of 1 to 99, not {ns_steps}")
        defaults = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov, "eps": eps}
        more = {"ns_coefficients": ns_coefficients, "ns_steps": ns_steps, "adjust_lr_fn": adjust_lr_fn}
        super().__init__(params, {**defaults, **more})
        for t in self.params:
            if t.ndim != 2:
                raise SettingError(f"Muon: trains matrices, not a parameter of shape {t.shape}")

    def _formula(self, group: ParameterGroup, p: Tensor, g: Tensor, lr: Tensor, s: States) -> Tensor:
        m, rest, _ = s.share("momentum")
        mean = s.put("momentum_buffer", s["momentum_buffer"] * m + g * rest)
        x = g + (mean - g) * m if group["nesterov"] else mean
        rows, columns = p.shape
        x = x.T if rows > columns else x
        x = x / (x * x).sum().sqrt().clamp(min=group["eps"])
        a, b, c = group["ns_coefficients"]
        for _ in range(group["ns_steps"]):
            gram = x @ x.T
            x = x * a + (gram * b + gram @ gram * c) @ x
        x = x.T if rows > columns else x
        matched = group["adjust_lr_fn"] == "match_rms_adamw"
        ratio = 0.2 * math.sqrt(max(rows, columns)) if matched else math.sqrt(max(1, rows / columns))
        new: Tensor = p * (1 - lr * group["weight_decay"]) - lr * ratio * x
        return new
