"""A model in training: the steps that all examples share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from anneal import nn
from anneal.amp import GradScaler, autocast
from anneal.distributed import average_gradients, clip_parts, world
from anneal.errors import MissingMethodError, SettingError
from anneal.tensor import Tensor, default_device, jit


class Training:
    """A model, an optimiser, and one compiled step. A subclass defines `next_batch`, `loss` and `sample`.

    Where several processes train together (`anneal.distributed.init`), each makes the same batch and takes its part of
    it; losses and gradients are the means of all.

    Args:
        steps: how many there will be. batch: examples in each.
        tokens: what `unit` counts, in each example (1: the examples themselves).
        schedule: sets the learning rate before every step. clip: the largest norm that the gradients may have together.
        optimizer: the optimiser of the parameters.

    >>> class Fit(Training):
    ...     def next_batch(self):
    ...         return (Tensor.ones(4, 2),)
    ...     def loss(self, x):
    ...         return (self.model(x) ** 2).mean()
    >>> line = nn.Linear(2, 1)
    >>> fit = Fit(line, nn.SGD(line.parameters(), lr=0.1), steps=10, batch=4)
    >>> losses = [fit.step().item() for _ in range(10)]
    >>> losses[-1] < losses[0]
    True
    """

    data: str = ""  # one line: which data, and where they come from
    info: str = ""  # one line: the model's sizes
    unit: str = "images"  # what examples_per_step counts
    picture: np.ndarray[Any, np.dtype[np.uint8]] | None = None  # [h, w, 3]: what sample() has to show, if anything

    def __init__(
        self,
        model: nn.Module,
        optimizer: nn.Optimizer,
        *,
        steps: int,
        batch: int,
        tokens: int = 1,
        schedule: nn.WarmupCosine | None = None,
        clip: float | None = None,
    ) -> None:
        self.model, self.optimizer, self.schedule, self.clip = model, optimizer, schedule, clip
        self.steps, self.batch, self.examples_per_step = steps, batch, batch * tokens
        self.group = world()
        self.wire: str | None = None  # the dtype in which gradients travel, where it is not their own
        self.bucket: int | None = None  # bytes of gradients that travel together, where that is not to be chosen here
        if batch % self.group.size:
            raise SettingError(f"a batch of {batch} has no {self.group.size} equal parts, one for each process")
        self.train_step = jit(self.update)
        self.watched = False
        self.gradient_norm: Tensor | None = None  # shape (1,): of the last step, if it is watched
        self.compute_in("float32")

    def compute_in(self, precision: str) -> None:
        """Have losses computed under `amp.autocast`; parameters and what the optimiser keeps stay float32. To be called
        before the first step.

        Args:
            precision: "float32" (no autocast), "float16", whose losses are scaled by `amp.GradScaler`, or "bfloat16".

        Raises SettingError for another.
        """
        if precision not in ("float32", "float16", "bfloat16"):
            raise SettingError(f"precision is float32, float16 or bfloat16, not {precision!r}")
        self.precision = precision
        self.scaler = GradScaler(default_device(), enabled=precision == "float16")

    def watch(self) -> None:
        """Have each step keep the norm of its gradients, before they are clipped. To be called before the first one."""
        self.watched, self.gradient_norm = True, Tensor.zeros(1).realize()

    def next_batch(self) -> tuple[Any, ...]:
        """Tensors for `loss` and `update`."""
        raise MissingMethodError(f"{type(self).__name__} defines no next_batch(): define it in the class")

    def loss(self, *batch: Any) -> Tensor:
        """The loss of a batch, shape (); nothing has run yet."""
        raise MissingMethodError(f"{type(self).__name__} defines no loss(): define it in the class")

    def update(self, *batch: Any) -> Tensor:
        """Forward, backward and optimiser, as one graph; jit captures it once and replays it.

        Args:
            batch: the tensors of a batch.
        """
        narrow = self.precision != "float32"
        with autocast("auto", self.precision if narrow else None, narrow):
            loss = self.loss(*batch)
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        results: list[Tensor] = []
        if self.group.size > 1:
            shards = set(map(id, nn.parallel.shards_of(self.model).values()))  # their gradients are means already
            parameters = [p for p in self.model.parameters() if id(p) not in shards]
            results = average_gradients(parameters, self.group, [loss], bucket=self.bucket, wire=self.wire)
            (loss,) = results
        if self.clip is not None or self.gradient_norm is not None:
            self.scaler.unscale_(self.optimizer)
        norm = None if self.clip is None and self.gradient_norm is None else self._clipped()
        if norm is not None and self.gradient_norm is not None:
            # with the update: by itself the norm would compute every gradient once more
            results.append(self.gradient_norm.assign(norm.detach().reshape(1)))
        self.scaler.step(self.optimizer, *results)
        self.scaler.update()
        return loss

    def _clipped(self) -> Tensor:
        """The norm of the gradients, which are clipped if they are to be."""
        parameters = list(self.model.parameters())
        if nn.parallel.shards_of(self.model):
            return clip_parts(parameters, math.inf if self.clip is None else self.clip, self.group)
        if self.clip is not None:
            return nn.clip_grad_norm_(parameters, self.clip)
        # of copies: what a limit of infinity makes of gradients is not wanted; no update is to wait for the norm
        copies = []
        for p in parameters:
            if (g := p.grad) is not None:
                copies.append(g.detach())
                copies[-1].grad = g.clone()
        return nn.clip_grad_norm_(copies, math.inf)

    def step(self) -> Tensor:
        """Do one optimiser step on the next batch; the loss of that batch, shape ()."""
        if self.schedule is not None:
            self.schedule.step()
        batch = self.next_batch()
        if self.group.size > 1:
            batch = tuple([self._part(x) for x in batch])
        out: Tensor = self.train_step(*batch)
        return out

    def _part(self, x: Any) -> Any:
        """This process's part of a tensor of a batch; what is not of as many examples is all processes'."""
        if not isinstance(x, Tensor) or not x.ndim or x.shape[0] != self.batch:
            return x
        part = self.batch // self.group.size
        return Tensor(x.numpy()[self.group.rank * part : (self.group.rank + 1) * part], device=x.device)

    def glimpse(self) -> str:
        """The result of `sample()` on the way; its draws, and the mode that it sets, leave later steps as they are."""
        drawn = {g: g.bit_generator.state for g in vars(self).values() if isinstance(g, np.random.Generator)}
        modes = [(m, m.training) for m in self.model.modules()]
        try:
            return self.sample()
        finally:
            for g, state in drawn.items():
                g.bit_generator.state = state
            for m, mode in modes:
                m.training = mode

    def sample(self) -> str:
        """A short text that shows what the model has learnt; may set `picture`."""
        return ""


def decayed(parameters: Iterable[Tensor], weight_decay: float) -> list[dict[str, Any]]:
    """Groups for AdamW: matrices decay, vectors (biases, norms) do not.

    Args:
        parameters: the tensors that train.
        weight_decay: the factor of the decay.
    """
    tensors = list(parameters)
    matrices, vectors = [t for t in tensors if t.ndim >= 2], [t for t in tensors if t.ndim < 2]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return [g for g in groups if g["params"]]


def main(make: Callable[[], Training], every: int = 100) -> None:
    """Train with the example's defaults, print the loss now and then, and the sample.

    Args:
        make: the function that makes the training.
        every: the number of steps between two lines.
    """
    training = make()
    for i in range(training.steps):
        loss = training.step()
        if i % every == 0 or i == training.steps - 1:
            print(f"step {i + 1}  loss {loss.item():.3f}")
    print(training.sample())
    if training.picture is not None:
        from anneal.training._data import shades

        print(shades(training.picture, 80))
