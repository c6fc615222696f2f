"""Checkpoints of a training: its weights, what the optimiser keeps and where random streams are.

They are one file. A sharded model's are a file for each process and a manifest that names them, which is replaced once
all are written.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from anneal import files, nn
from anneal.errors import DataError, UserError
from anneal.ops import default_generator
from anneal.tensor import Tensor, io
from anneal.training._run import Training

FILE = "training.safetensors"
MANIFEST = "training.json"
_PARTS = ("model", "optimizer")


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
        notes["random"] = {name: g.bit_generator.state for name, g in self._streams().items()}
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
        steps = self.training.group.all_gather([np.array([step])])[0].reshape(-1)
        if (steps != step).any():
            raise DataError(f"processes found {self.path} after {steps.tolist()} steps: all need to see one folder")
        return step

    def _read(self) -> int:
        training = self.training
        try:
            said = self.path.read_text() if self.shards else io.safe_metadata(self.path)["training"]
            notes: dict[str, Any] = json.loads(said)
            theirs = {name: notes[name] for name in self.settings}
            step = int(notes["step"])
            for name, stream in self._streams().items():
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
        state: dict[str, dict[str, Any]] = {part: {} for part in _PARTS}
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
        optimizer, found = self.training.optimizer, [f"model.{name}" for name in self.shards]
        for n, p in enumerate(optimizer.params):
            if any(p is s for s in self.shards.values()):
                state = optimizer.state.get(id(p), {})
                found += [f"optimizer.{n}.{name}" for name, t in state.items() if t.shape == p.shape]
        return found

    def _joined(self, notes: dict[str, Any]) -> dict[str, Tensor]:
        """The contents of a sharded model's files for this process: its part of what is spread, the rest whole."""
        group, optimizer = self.training.group, self.training.optimizer
        given = [io.safe_open(self.path.with_name(name), "cpu") for name in notes["files"]]
        out = {k: given[0][k] for k in given[0] if k not in set(notes["parts"])}
        for key in notes["parts"]:
            part, _, name = key.partition(".")
            like = self.shards[name] if part == "model" else optimizer.params[int(name.partition(".")[0])]
            whole, count = np.concatenate([file.array(key).reshape(-1) for file in given]), like.numel()
            if abs(whole.size - count * group.size) >= max(len(given), group.size):  # more than padding
                raise UserError(f"{key} has {whole.size} elements there, and here {count * group.size}")
            mine = np.append(whole, np.zeros(group.size, whole.dtype))[group.rank * count : (group.rank + 1) * count]
            out[key] = Tensor(mine.reshape(like.shape), device=like.device)
        return out

    def _streams(self) -> dict[str, np.random.Generator]:
        """The streams of random numbers that the training draws from, by name."""
        return {n: g for n, g in vars(self.training).items() if isinstance(g, np.random.Generator)}
