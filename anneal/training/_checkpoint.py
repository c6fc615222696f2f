"""Checkpoints of a training: one file with its weights, what the optimiser keeps and where random streams are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from anneal import files
from anneal.errors import DataError, SettingError, UserError
from anneal.ops import default_generator
from anneal.tensor import io
from anneal.training._run import Training

__all__ = ["Checkpoint"]

FILE = "training.safetensors"
_PARTS = ("model", "optimizer")


class Checkpoint:
    """The checkpoint of a training in a folder: one file, the same for any number of processes, replaced by one rename.

    A process that is killed at any moment leaves the last whole one. Training that goes on from it computes, on the cpu
    device with as many processes, what would have followed, to the last bit.

    Args:
        training: the training.
        folder: the folder, made if it is not there. All processes see the same one.
        settings: values that have to be the same for whoever goes on, by name.

    Raises DataError where the folder or the file cannot be made, SettingError for a sharded model.

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
        if any(name.endswith("_shard") for name, _ in training.model.named_parameters()):
            raise SettingError(
                "Checkpoint: the model is sharded; nn.parallel.whole_state_dict gives what to save of it"
            )
        self.training, self.path, self.settings = training, folder / FILE, settings
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if training.group.rank == 0:
                files.check_replaceable(self.path)
        except OSError as e:
            why = "it is there, and no folder" if isinstance(e, FileExistsError) else e.strerror or e
            raise DataError(f"{self.path} cannot be written: {why}; choose another folder") from e

    def save(self, step: int) -> None:
        """Write the state after `step` steps. Every process calls this, and the first one writes."""
        training = self.training
        state = {f"optimizer.{k}": t for k, t in training.optimizer.state_dict().items()}
        if training.group.rank:
            return
        state |= {f"model.{k}": t for k, t in training.model.state_dict().items()}
        notes = {
            "step": step,
            "scaler": training.scaler.state_dict(),
            "draws": default_generator.state(),
            **self.settings,
        }
        notes["random"] = {name: g.bit_generator.state for name, g in self._streams().items()}
        io.safe_save(state, self.path, {"training": json.dumps(notes)})

    def resume(self) -> int:
        """Go on from the file; the number of steps that are done, 0 where there is no file.

        Raises DataError for a damaged file, one of another training, or processes that found other ones.
        """
        step = self._read() if self.path.exists() else 0
        steps = self.training.group.all_gather([np.array([step])])[0].reshape(-1)
        if (steps != step).any():
            raise DataError(f"processes found {self.path} after {steps.tolist()} steps: all need to see one folder")
        return step

    def _read(self) -> int:
        training = self.training
        try:
            notes: dict[str, Any] = json.loads(io.safe_metadata(self.path)["training"])
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
        for name, tensor in io.safe_load(self.path).items():
            part, _, rest = name.partition(".")
            state.setdefault(part, {})[rest] = tensor
        try:
            training.model.load_state_dict(state["model"])
            training.optimizer.load_state_dict(state["optimizer"])
            training.scaler.load_state_dict(notes["scaler"])
        except UserError as e:
            raise DataError(f"{self.path} is of another model: {e}") from e
        if training.schedule is not None:
            training.schedule.count = step
        if hasattr(training, "done"):
            training.done = step
        return step

    def _streams(self) -> dict[str, np.random.Generator]:
        """The streams of random numbers that the training draws from, by name."""
        return {n: g for n, g in vars(self.training).items() if isinstance(g, np.random.Generator)}
