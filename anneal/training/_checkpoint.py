"""Checkpoints of a training: its weights, what the optimiser keeps and where random streams are."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from anneal import files, nn
from anneal.amp import GradScaler, autocast
from anneal.distributed import average_gradients, clip_parts, world
from anneal.errors import DataError, MissingMethodError, SettingError, UserError
from anneal.frozen import Json
from anneal.ops import default_generator
from anneal.tensor import Tensor, default_device, io, jit

FILE = "training.safetensors"
MANIFEST = "training.json"
_PARTS = ("model", "optimizer")

# Checkpoints are one file. A sharded model's are a file for each process and a manifest that names them, which is
# replaced once all are written.


class Checkpoint:
    """The checkpoint of a training in a folder: one file, the same for any number of processes, replaced by one rename.

    Of a sharded model (`nn.parallel.fully_shard`) each process writes its parts into a file of its own, and the first
    one a manifest, by one rename. Any number of processes goes on from either. A process that is killed at any moment
    leaves the last whole one. Training that goes on from it computes, on the cpu device with as many processes, what
    would have followed, to the last bit.

    Args:
        training: the training.
        folder: the folder, made if it is not there. All processes see the same one.
        settings: values that have to be the same for whoever goes on, by name.

    Raises DataError where the folder or the file cannot be made.

    >>> import tempfile
    >>> from anneal.training import load_example
    >>> made = [load_example("mlp").make(steps=4, batch=8, seed=1, lr=0.01) for _ in range(2)]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first, second = [Checkpoint(t, Path(folder), batch=8) for t in made]
    ...     _ = made[0].step(), first.save(1)
    ...     print(second.resume(), made[0].step().item() == made[1].step().item())
    1 True
    """

    def __init__(self, training: Training, folder: Path, **settings: Any) -> None:
        self.shards = nn.parallel.shards_of(training.model)
        self.training, self.path, self.settings = training, folder / (MANIFEST if self.shards else FILE), settings
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if training.group.rank == 0:
                files.check_replaceable(self.path)
        except OSError as e:
            why = "it is there, and no folder" if isinstance(e, FileExistsError) else e.strerror or e
            raise DataError(f"{self.path} cannot be written: {why}; choose another folder") from e

    def save(self, step: int) -> None:
        """Write the state after `step` steps. Every process calls this, and the first one writes."""
        training, rank = self.training, self.training.group.rank
        state = {f"optimizer.{k}": t for k, t in training.optimizer.state_dict().items()}
        if rank and not self.shards:
            return
        state |= {f"model.{k}": t for k, t in training.model.state_dict().items()}
        notes = {
            "step": step,
            "scaler": training.scaler.state_dict(),
            "draws": default_generator.state(),
            **self.settings,
        }
        notes["random"] = {name: g.bit_generator.state for name, g in training.streams().items()}
        if not self.shards:
            io.safe_save(state, self.path, {"training": json.dumps(notes)})
            return
        size, parts = training.group.size, self._parts()
        names = [f"training.{step}.{r + 1}-of-{size}.safetensors" for r in range(size)]
        io.safe_save({k: t for k, t in state.items() if not rank or k in parts}, self.path.parent / names[rank])
        training.group.barrier()  # all are written: the manifest may name them
        if rank == 0:
            io.save_text(json.dumps({**notes, "files": names, "parts": parts}), self.path)
            for old in self.path.parent.glob("training.*-of-*.safetensors"):
                if old.name not in names:
                    old.unlink()
        training.group.barrier()  # nobody writes the next one while the first process looks for old ones

    def resume(self) -> int:
        """Go on from the file; the number of steps that are done, 0 where there is no file.

        Raises DataError for a damaged file, one of another training, or processes that found other ones.
        """
        step = self._read() if self.path.exists() else 0
        other = self.path.with_name(FILE if self.shards else MANIFEST)
        if not step and other.exists():
            raise DataError(f"{other} is of a model that is {'not ' * bool(self.shards)}sharded, unlike this one")
        steps = self.training.group.all_gather([np.array([step])])[0].ravel()
        if (steps != step).any():
            raise DataError(f"processes found {self.path} after {steps.tolist()} steps: all need to see one folder")
        return step

    def _read(self) -> int:
        training = self.training
        try:
            said = self.path.read_text() if self.shards else io.safe_metadata(self.path)["training"]
            notes = json.loads(said)
            theirs = {name: notes[name] for name in self.settings}
            step = int(notes["step"])
            for name, stream in training.streams().items():
                stream.bit_generator.state = notes["random"][name]
            default_generator.go_on(notes["draws"])
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as e:
            raise DataError(f"{self.path} is no checkpoint of such a training ({e}); name another folder") from e
        for name, mine in self.settings.items():
            if theirs[name] != mine:
                raise DataError(
                    f"{self.path} was made with --{name} {theirs[name]}, and this is {mine}; use the same, or another "
                    "folder"
                )
        state: dict[str, Json] = {part: {} for part in _PARTS}
        try:
            for name, tensor in (self._joined(notes) if self.shards else io.safe_load(self.path)).items():
                part, _, rest = name.partition(".")
                state.setdefault(part, {})[rest] = tensor
            training.model.load_state_dict(state["model"])
            training.optimizer.load_state_dict(state["optimizer"])
            training.scaler.load_state_dict(notes["scaler"])
        except (UserError, LookupError) as e:
            raise DataError(f"{self.path} is of another model: {e}") from e
        if training.schedule is not None:
            training.schedule.count = step
        if hasattr(training, "done"):
            training.done = step
        return step

    def _parts(self) -> list[str]:
        """The names, as checkpoints have them, of what each process has its part of."""
        optimizer, shards = self.training.optimizer, set(self.shards.values())
        found = [f"model.{name}" for name in self.shards]
        for n, p in enumerate(optimizer.params):
            if p in shards:
                state = optimizer.state.get(p, {})
                found += [f"optimizer.{n}.{name}" for name, t in state.items() if t.shape == p.shape]
        return found

    def _joined(self, notes: Json) -> dict[str, Tensor]:
        """The contents of a sharded model's files for this process: its part of what is spread, the rest whole."""
        group, optimizer = self.training.group, self.training.optimizer
        given = [io.safe_open(self.path.with_name(name), "cpu") for name in notes["files"]]
        out = {k: given[0][k] for k in given[0] if k not in set(notes["parts"])}
        for key in notes["parts"]:
            part, _, name = key.partition(".")
            like = self.shards[name] if part == "model" else optimizer.params[int(name.partition(".")[0])]
            whole, count = np.concatenate([file.array(key).ravel() for file in given]), like.numel()
            if abs(whole.size - count * group.size) >= max(len(given), group.size):  # more than padding
                raise UserError(f"{key} has {whole.size} elements there, and here {count * group.size}")
            mine = np.append(whole, np.zeros(group.size, whole.dtype))[group.rank * count : (group.rank + 1) * count]
            out[key] = Tensor(mine.reshape(like.shape), device=like.device)
        return out


# -- a model in training ----------------------------------------------------------------------------------------------
# The steps that all examples share.


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
        results = []
        if self.group.size > 1:
            shards = set(nn.parallel.shards_of(self.model).values())  # their gradients are means already
            parameters = [p for p in self.model.parameters() if p not in shards]
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
        # of copies: no update is to wait for the norm
        return nn.utils.get_total_norm([g.clone() for p in parameters if (g := p.grad) is not None])

    def step(self) -> Tensor:
        """Do one optimiser step on the next batch; the loss of that batch, shape ()."""
        if self.schedule is not None:
            self.schedule.step()
        batch = self.next_batch()
        if self.group.size > 1:
            batch = tuple([self._part(x) for x in batch])
        return self.train_step(*batch)

    def _part(self, x: Any) -> Any:
        """This process's part of a tensor of a batch; what is not of as many examples is all processes'."""
        if not isinstance(x, Tensor) or not x.ndim or x.shape[0] != self.batch:
            return x
        part = self.batch // self.group.size
        return Tensor(x.numpy()[self.group.rank * part : (self.group.rank + 1) * part], device=x.device)

    def streams(self) -> dict[str, np.random.Generator]:
        """The streams of random numbers that the training draws from, by name."""
        return {n: g for n, g in vars(self).items() if isinstance(g, np.random.Generator)}

    def glimpse(self) -> str:
        """The result of `sample()` on the way; its draws, and the mode that it sets, leave later steps as they are."""
        drawn = {g: g.bit_generator.state for g in self.streams().values()}
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


def decayed(parameters: Iterable[Tensor], weight_decay: float) -> list[Json]:
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
