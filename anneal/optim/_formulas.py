"""Optimisers whose update is a formula of tensors: parameter, gradient, rate and state to the new parameter."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, InitVar
from typing import Any, ClassVar, dataclass_transform

from anneal.errors import SettingError
from anneal.ops import init_of
from anneal.optim._base import Optimizer, ParameterGroup, Parameters
from anneal.optim._states import settings_among
from anneal.tensor import Tensor, no_grad
from anneal.uop import Ints, UOp

_NUMBERS = ("step", "mu_product", "eta", "mu")  # states of shape ()

# Rates and counts are data, so every step runs the same kernels. Arguments are those of torch.


class StepStates:
    """The state of one parameter in one step, before and after it."""

    def __init__(self, owner: Optimizer, group: ParameterGroup, t: Tensor, done: dict[Tensor, UOp]) -> None:
        self._owner, self._group, self._t, self._done = owner, group, t, done

    def get(self, name: str, start: float) -> Tensor:
        """A state as it was, `start` before the first step."""
        return self._owner._state(self._t, name, start).detach()

    def __getitem__(self, name: str) -> Tensor:
        return self.get(name, 0.0)

    def put(self, name: str, value: Tensor) -> Tensor:
        """The new state, which is returned."""
        state = self._owner._state(self._t, name)
        self._done[state] = value.uop.cast(state.uop.dtype)
        return value

    def share(self, key: str, n: int = 0) -> tuple[Any, Any, Any]:
        """The share b that the setting `key` is, or number `n` of it: b, 1 - b and log(b)."""
        return self._group.share(key, n)

    def betas(self) -> tuple[tuple[Any, Any, Any], tuple[Any, Any, Any]]:
        """The two values of the setting "betas"."""
        return self.share("betas"), self.share("betas", 1)

    def toward(self, name: str, value: Tensor, share: Any) -> Tensor:
        """The new state: the old one, moved towards a value by a share of the distance."""
        return self.put(name, self[name] + (value - self[name]) * share)

    def mixed(self, name: str, stays: Any, value: Tensor, joins: Any) -> Tensor:
        """The new state: a share of the old one, plus a share of a value."""
        return self.put(name, self[name] * stays + value * joins)

    def count(self) -> Tensor:
        """The number of this step, from 1 on."""
        return self.put("step", self["step"] + 1)


# The operands of a formula: the settings, a parameter and its gradient, the rate, and the parameter's states.
Operands = tuple[ParameterGroup, Tensor, Tensor, Tensor, StepStates]


def _correction(share: tuple[Any, Any, Any], step: Tensor) -> Tensor:
    """1 - beta**step, with the digits that a subtraction would lose."""
    rest: Tensor = -(step * share[2]).expm1()
    return rest


@dataclass_transform(eq_default=False)
class _Row(Optimizer):
    """Base of optimisers whose annotated attributes are what `__init__` takes, in the order of a dataclass."""

    def __init_subclass__(cls, **options: Any) -> None:
        if "__init__" not in vars(cls) and cls.__module__.startswith("anneal."):
            cls.__init__ = init_of(cls, "self._begin(locals())")  # type: ignore[method-assign]
        super().__init_subclass__(**options)

    def _begin(self, given: dict[str, Any]) -> None:
        Optimizer.__init__(self, given["params"], settings_among(given))


class Formula(_Row):
    """An optimiser whose subclasses compute each parameter's new value in `_formula`."""

    params: InitVar[Parameters]
    _: KW_ONLY
    maximize: InitVar[bool] = False
    foreach: InitVar[bool | None] = None

    _decays = True  # whether weight_decay is applied before the formula: it joins the gradient,
    _decoupled = False  # or is taken away from the parameter

    def _shape_of(self, t: Tensor, name: str) -> Ints:
        return () if name in _NUMBERS else t.shape

    _formula: ClassVar[Any]  # the parameter's new value

    def _update(self, group: ParameterGroup, params: list[Tensor], done: dict[Tensor, UOp]) -> None:
        of = {name: group[name] for name in self.defaults}  # other items of a group are not settings
        with no_grad():
            for t in params:
                u, slope, wide = self._operands(t, of.get("maximize", False))
                p, g, lr = [t._new_plain(x) for x in (u, slope, group.rate_node.cast(wide))]
                if decay := of.get("weight_decay") if self._decays else None:
                    if self._decoupled or of.get("decoupled_weight_decay"):
                        p = p * (1 - lr * decay)
                    else:
                        g = g + p * decay
                new = self._formula((group, p, g, lr, StepStates(self, group, t, done)))
                self._put(t, new.uop, done)


class _Captured(Formula):
    _: KW_ONLY
    capturable: InitVar[bool] = False
    differentiable: InitVar[bool] = False


class RMSprop(_Captured):
    """RMSprop (Hinton, 2012) as torch computes it.

    Args:
        alpha: how much of the mean of squares stays. eps: added to its root. momentum: how much of the last step stays.
        centered: less the squared mean of the gradients. weight_decay: how much of a parameter joins its gradient.

    >>> w = Tensor([1.0], requires_grad=True)
    >>> optimizer = RMSprop([w])
    >>> (w * w).sum().backward(); optimizer.step(); w.item() < 1.0
    True
    """

    lr: InitVar[float] = 1e-2
    alpha: InitVar[float] = 0.99
    eps: InitVar[float] = 1e-8
    weight_decay: InitVar[float] = 0.0
    momentum: InitVar[float] = 0.0
    centered: InitVar[bool] = False

    def _formula(self, of: Operands) -> Any:
        group, p, g, lr, s = of
        a = group["alpha"]
        s.count()
        square = s.mixed("square_avg", a, g * g, 1 - a)
        if group["centered"]:
            mean = s.toward("grad_avg", g, 1 - a)
            square = square - mean * mean
        step = g / (square.sqrt() + group["eps"])
        if group["momentum"]:
            step = s.put("momentum_buffer", s["momentum_buffer"] * s.share("momentum")[0] + step)
        return p - lr * step


class Adagrad(Formula):
    """Adagrad (Duchi and others, 2011) as torch computes it.

    Args:
        lr_decay: how the rate falls with the steps. initial_accumulator_value: where sums of squares start.

    >>> w = Tensor([1.0], requires_grad=True)
    >>> optimizer = Adagrad([w])
    >>> (w * w).sum().backward(); optimizer.step(); w.item() < 1.0
    True
    """

    lr: InitVar[float] = 1e-2
    lr_decay: InitVar[float] = 0.0
    weight_decay: InitVar[float] = 0.0
    initial_accumulator_value: InitVar[float] = 0.0
    eps: InitVar[float] = 1e-10
    _: KW_ONLY
    differentiable: InitVar[bool] = False
    fused: InitVar[bool | None] = None

    def _formula(self, of: Operands) -> Any:
        group, p, g, lr, s = of
        step = s.count()
        total = s.put("sum", s.get("sum", group["initial_accumulator_value"]) + g * g)
        return p - lr / (1 + (step - 1) * group["lr_decay"]) * g / (total.sqrt() + group["eps"])


class Adadelta(_Captured):
    """Adadelta (Zeiler, 2012) as torch computes it.

    Args:
        rho: how much of the means of squares stays. eps: added to them.

    >>> w = Tensor([1.0], requires_grad=True)
    >>> optimizer = Adadelta([w])
    >>> (w * w).sum().backward(); optimizer.step(); w.item() < 1.0
    True
    """

    lr: InitVar[float] = 1.0
    rho: InitVar[float] = 0.9
    eps: InitVar[float] = 1e-6
    weight_decay: InitVar[float] = 0.0

    def _formula(self, of: Operands) -> Any:
        group, p, g, lr, s = of
        rho, eps = group["rho"], group["eps"]
        s.count()
        square = s.mixed("square_avg", rho, g * g, 1 - rho)
        change = (s["acc_delta"] + eps).sqrt() / (square + eps).sqrt() * g
        s.mixed("acc_delta", rho, change * change, 1 - rho)
        return p - lr * change


class _Moments(_Captured):
    lr: InitVar[float] = 2e-3
    betas: InitVar[tuple[float, float]] = (0.9, 0.999)
    eps: InitVar[float] = 1e-8
    weight_decay: InitVar[float] = 0.0


class Adamax(_Moments):
    """Adamax (Kingma and Ba, 2015), Adam with the largest gradient in place of the mean square.

    >>> w = Tensor([1.0], requires_grad=True)
    >>> optimizer = Adamax([w])
    >>> (w * w).sum().backward(); optimizer.step(); w.item() < 1.0
    True
    """

    def _formula(self, of: Operands) -> Any:
        group, p, g, lr, s = of
        first, second = s.betas()
        rest1, b2 = first[1], second[0]
        step = s.count()
        mean = s.toward("exp_avg", g, rest1)
        most = s.put("exp_inf", (s["exp_inf"] * b2).maximum(g.abs() + group["eps"]))
        return p - lr / _correction(first, step) * mean / most


class NAdam(_Moments):
    """NAdam (Dozat, 2016), Adam that looks ahead, as torch computes it.

    Args:
        momentum_decay: how fast the momentum comes to its full size. decoupled_weight_decay: as in `AdamW`.

    >>> w = Tensor([1.0], requires_grad=True)
    >>> optimizer = NAdam([w])
    >>> (w * w).sum().backward(); optimizer.step(); w.item() < 1.0
    True
    """

    momentum_decay: InitVar[float] = 4e-3
    decoupled_weight_decay: InitVar[bool] = False

    def _formula(self, of: Operands) -> Any:
        group, p, g, lr, s = of
        first, second = s.betas()
        (b1, rest1, _), (b2, rest2, _) = first, second
        step = s.count()
        decay = group["momentum_decay"] * math.log(0.96)
        mu, following = [b1 * (1 - 0.5 * (n * decay).exp()) for n in (step, step + 1)]
        product = s.put("mu_product", s.get("mu_product", 1.0) * mu)
        mean = s.toward("exp_avg", g, rest1)
        square = s.mixed("exp_avg_sq", b2, g * g, rest2)
        size = (square / _correction(second, step)).sqrt() + group["eps"]
        ahead = lr * following / (1 - product * following) * mean / size
        return p - lr * (1 - mu) / (1 - product) * g / size - ahead


class RAdam(_Moments):
    """RAdam (Liu and others, 2019), Adam whose first steps are rectified, as torch computes it.

    Args:
        decoupled_weight_decay: as in `AdamW`.

    >>> w = Tensor([1.0], requires_grad=True)
    >>> optimizer = RAdam([w])
    >>> (w * w).sum().backward(); optimizer.step(); w.item() < 1.0
    True
    """

    lr: InitVar[float] = 1e-3
    decoupled_weight_decay: InitVar[bool] = False

    def _formula(self, of: Operands) -> Any:
        group, p, g, lr, s = of
        first, second = s.betas()
        rest1, (b2, rest2, _) = first[1], second
        step = s.count()
        mean = s.toward("exp_avg", g, rest1)
        square = s.mixed("exp_avg_sq", b2, g * g, rest2)
        part = _correction(second, step)
        full = 2 / rest2 - 1
        length = full - 2 * step * (1 - part) / part
        share = (length - 4) * (length - 2) * full / ((full - 4) * (full - 2) * length.clamp(min=1))
        sure = length > 5.0
        size = part.sqrt() / (square.sqrt() + group["eps"]) * sure.where(share, 1.0).sqrt()
        return p - lr * (mean / _correction(first, step)) * sure.where(size, 1.0)


class Rprop(_Captured):
    """Resilient backpropagation (Riedmiller and Braun, 1993): signs of gradients and a step of each element's own.

    Args:
        etas: by how much steps shrink and grow. step_sizes: the least and the largest step.

    >>> w = Tensor([1.0], requires_grad=True)
    >>> optimizer = Rprop([w])
    >>> (w * w).sum().backward(); optimizer.step(); w.item() < 1.0
    True
    """

    lr: InitVar[float] = 1e-2
    etas: InitVar[tuple[float, float]] = (0.5, 1.2)
    step_sizes: InitVar[tuple[float, float]] = (1e-6, 50.0)

    def _formula(self, of: Operands) -> Any:
        group, p, g, lr, s = of
        less, more = group["etas"]
        sign = (g * s["prev"]).sign()
        first = s.count() == 1.0
        size = first.where(lr, s["step_size"])
        size = (sign > 0).where(size * more, (sign < 0).where(size * less, size))
        size = s.put("step_size", size.clamp(*group["step_sizes"]))
        g = s.put("prev", (sign < 0).where(0.0, g))
        return p - g.sign() * size


class ASGD(_Captured):
    """Averaged stochastic gradient descent (Polyak and Juditsky, 1992): the state `ax` has the mean.

    Args:
        lambd: how much of a parameter decays. alpha: the power by which the rate falls. t0: the step where means begin.

    >>> w = Tensor([1.0], requires_grad=True)
    >>> optimizer = ASGD([w])
    >>> (w * w).sum().backward(); optimizer.step(); w.item() < 1.0
    True
    """

    lr: InitVar[float] = 1e-2
    lambd: InitVar[float] = 1e-4
    alpha: InitVar[float] = 0.75
    t0: InitVar[float] = 1e6
    weight_decay: InitVar[float] = 0.0

    def _formula(self, of: Operands) -> Any:
        group, p, g, lr, s = of
        step = s.count()
        # the rate and the weight of the step before
        rate, weight = (step == 1.0).where(lr, s["eta"]), s.get("mu", 1.0)
        new = p * (1 - group["lambd"] * rate) - rate * g
        s.put("eta", lr / (1 + group["lambd"] * lr * step) ** group["alpha"])
        s.put("mu", 1 / (step - group["t0"]).clamp(min=1.0))
        s.put("ax", (weight == 1.0).where(new, s["ax"] + (new - s["ax"]) * weight))
        return new


class Adafactor(Formula):
    """Adafactor (Shazeer and Stern, 2018) as torch computes it: squares of matrices by rows and columns.

    Args:
        beta2_decay: the power of the step by which means forget. eps: added to squares (None: the dtype's smallest
            step),
        and the least size of a parameter. d: the largest root mean square of an update.

    >>> w = Tensor([1.0], requires_grad=True)
    >>> optimizer = Adafactor([w])
    >>> (w * w).sum().backward(); optimizer.step(); w.item() < 1.0
    True
    """

    _decays = False

    def _shape_of(self, t: Tensor, name: str) -> Ints:
        if name == "row_var":
            return (*t.shape[:-1], 1)
        return (*t.shape[:-2], 1, t.shape[-1]) if name == "col_var" else super()._shape_of(t, name)

    lr: InitVar[float] = 1e-2
    beta2_decay: InitVar[float] = -0.8
    eps: InitVar[tuple[float | None, float]] = (None, 1e-3)
    d: InitVar[float] = 1.0
    weight_decay: InitVar[float] = 0.0

    def _formula(self, of: Operands) -> Any:
        group, p, g, lr, s = of
        eps1, eps2 = group["eps"]
        eps1 = (2.0**-52 if p.dtype.bits == 64 else 2.0**-23) if eps1 is None else eps1
        step = s.count()
        share = step ** group["beta2_decay"]
        rate = lr.minimum(1 / step.sqrt())
        size = (p * p).mean().sqrt().clamp(min=eps2) * rate
        if group["weight_decay"]:
            p = p * (1 - lr * group["weight_decay"])
        if p.ndim > 1:
            rows = s.toward("row_var", (g * g).mean(axis=-1, keepdim=True), share)
            columns = s.toward("col_var", (g * g).mean(axis=-2, keepdim=True), share)
            square = rows @ columns / rows.mean(axis=-2, keepdim=True).clamp(min=eps1)
        else:
            square = s.toward("variance", g * g, share)
        change = g / square.clamp(min=eps1 * eps1).sqrt()
        return p - size / ((change * change).mean().sqrt() / group["d"]).clamp(min=1.0) * change


class Lion(Formula):
    """Lion (Chen and others, 2023): signs of a mean of the gradients, with decoupled weight decay.

    Args:
        betas: the first mixes the step's direction, the second the mean that is kept.

    >>> w = Tensor([1.0], requires_grad=True)
    >>> optimizer = Lion([w])
    >>> (w * w).sum().backward(); optimizer.step(); w.item() < 1.0
    True
    """

    _decoupled = True

    lr: InitVar[float] = 1e-4
    betas: InitVar[tuple[float, float]] = (0.9, 0.99)
    weight_decay: InitVar[float] = 0.0

    def _formula(self, of: Operands) -> Any:
        group, p, g, lr, s = of
        (b1, rest1, _), (b2, rest2, _) = s.betas()
        before = s["exp_avg"]
        s.mixed("exp_avg", b2, g, rest2)
        return p - lr * (before * b1 + g * rest1).sign()


class SparseAdam(Formula):
    """Adam for the rows that a step looked up, as torch's for sparse gradients; other rows keep their values and
    moments.

    Gradients are dense here: a row was looked up if its gradient is not all zeros. torch refuses dense gradients, and
    also moves rows that were looked up and whose gradient is zero.

    Args:
        betas: the decay of the mean and of the mean of squares. eps: added to the root.
        maximize: whether to maximise the loss.

    >>> w = Tensor([[1.0], [1.0]], requires_grad=True)
    >>> optimizer = SparseAdam([w], lr=0.5)
    >>> w[0].sum().backward(); optimizer.step(); w.tolist()  # torch's number too
    [[0.5000001788139343], [1.0]]
    """

    def __init__(
        self,
        params: Parameters,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        self._begin(locals())

    def _formula(self, of: Operands) -> Any:
        group, p, g, lr, s = of
        step = s.count()
        first, second = s.betas()
        row = (g != 0).reshape(g.shape[0], -1).any(1).reshape(-1, *[1] * (g.ndim - 1)) if g.ndim > 1 else g != 0
        m, v = s["exp_avg"], s["exp_avg_sq"]
        m = s.put("exp_avg", row.where(m * first[0] + g * first[1], m))
        v = s.put("exp_avg_sq", row.where(v * second[0] + g * g * second[1], v))
        size = lr * _correction(second, step).sqrt() / _correction(first, step)
        return row.where(p - size * m / (v.sqrt() + group["eps"]), p)


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

    _decoupled = True

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
        self._begin(locals())
        for t in self.params:
            if t.ndim != 2:
                raise SettingError(f"Muon: trains matrices, not a parameter of shape {t.shape}")

    def _formula(self, of: Operands) -> Any:
        group, p, g, lr, s = of
        m, rest, _ = s.share("momentum")
        mean = s.mixed("momentum_buffer", m, g, rest)
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
        return p - lr * ratio * x
