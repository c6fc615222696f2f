"""GPT-2 learns Tiny Shakespeare: from a checkpoint on, or a small one from nothing.

    anneal train gpt2               anneal train gpt2 --scratch --checkpoint shakespeare

Its checkpoints are GPT-2's, so `anneal gpt2 sample --model-dir shakespeare` and transformers read them. Beside the
weights stands what training goes on from: the optimiser's state, the place in the schedule and in the stream of random
numbers.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from anneal import files, nn
from anneal.assets import ASSETS, fetch, load
from anneal.errors import DataError, UserError
from anneal.tensor import Tensor, io, manual_seed
from anneal.training import TokenFiles, Training, decayed, main

from .checkpoint import WEIGHTS, read_checkpoint, write_checkpoint
from .generate import Decoder, Sampling
from .tokenizer import Tokenizer
from .vocabulary import read_text

__all__ = ["FineTuning", "Outline", "make", "outline"]

STEPS, BATCH, LR = 1000, 8, 3e-4
CONTEXT, LAYERS, HEADS, WIDTH = 128, 4, 4, 256  # of a small one; a window has so many tokens in any case
WARM_UP = 50

VOCABULARY = ("vocab.json", "merges.txt")
STATE = "training-{}.safetensors"
STATES = re.compile(r"training-\d+\.safetensors")


class FineTuning(Training):
    """A GPT-2 in training, on the default device.

    Args:
        words: the folder of the vocabulary.
        start: a checkpoint to start from; without one a small model is made.
        checkpoint: the folder for `save`. If it has a checkpoint already, training goes on from there: on the cpu
            device what follows is what would have followed, to the last bit.

    Raises DataError for a folder that is none of these, or was made with another batch, seed or learning rate.
    """

    model: nn.GPT
    unit = "tokens"

    def __init__(
        self, steps: int, batch: int, seed: int, lr: float, words: Path,
        start: Path | None = None, checkpoint: Path | None = None, tokens: Path | None = None,
    ) -> None:  # fmt: skip
        if checkpoint is not None:
            _prepare(checkpoint)
        self.words, self.tokenizer = words, Tokenizer.read(*[words / name for name in VOCABULARY])
        if tokens is None:
            self.text = np.array(self.tokenizer.encode(load("tinyshakespeare").decode()), np.int32)
            self.data = f"Tiny Shakespeare, {len(self.text):,} tokens, shipped with anneal (public domain)"
        self.rng = np.random.default_rng(seed)
        manual_seed(seed)
        self.checkpoint, self.done = checkpoint, 0  # steps so far
        again = checkpoint is not None and (checkpoint / WEIGHTS).exists()
        model = self._model(checkpoint if again else start)
        c = model.config
        self.info = (
            f"vocab {c.vocab_size}, {c.n_layer} layers, {c.n_head} heads, width {c.n_embd}, context {c.block_size}"
        )
        self.window = min(CONTEXT, c.block_size)
        self.files: TokenFiles | None = None
        if tokens is not None:
            found = (
                sorted([p for p in tokens.iterdir() if p.suffix in (".bin", ".npy")]) if tokens.is_dir() else [tokens]
            )
            self.files = TokenFiles(found, self.window, seed, c.vocab_size)
            self.data = f"{tokens}, {self.files.tokens:,} tokens"
        self.settings = {"batch": batch, "seed": seed, "lr": lr}
        optimizer = nn.AdamW(decayed(model.parameters(), 0.1), lr=lr, betas=(0.9, 0.95))
        schedule = nn.WarmupCosine(optimizer, lr, warmup=WARM_UP, steps=steps, floor=0.1)
        super().__init__(model, optimizer, steps=steps, batch=batch, tokens=self.window, schedule=schedule, clip=1.0)
        if again and checkpoint is not None:
            self._resume(checkpoint, schedule)

    def _model(self, start: Path | None) -> nn.GPT:
        size = max(self.tokenizer.vocabulary.tokens) + 1
        if start is None:
            return nn.GPT(vocab_size=size, block_size=CONTEXT, n_layer=LAYERS, n_head=HEADS, n_embd=WIDTH)
        model = read_checkpoint(start)
        if size > model.config.vocab_size:
            raise DataError(
                f"{start} knows {model.config.vocab_size} tokens, and {self.words / VOCABULARY[0]} has {size}: they "
                "do not "
                "belong together"
            )
        return model.train()

    def next_batch(self) -> tuple[Tensor]:
        """Random windows of the text, int32[batch, window + 1]."""
        if self.files is not None:  # this process's part alone is read
            part, rank = self.batch // self.group.size, self.group.rank
            return (Tensor(self.files.take(max(0, self.done - 1), self.batch, rank * part, (rank + 1) * part)),)
        starts = self.rng.integers(0, len(self.text) - self.window - 1, self.batch)
        return (Tensor(self.text[starts[:, None] + np.arange(self.window + 1)]),)

    def loss(self, windows: Tensor) -> Tensor:
        """Mean cross entropy of the token that follows each position, shape ()."""
        return self.model.loss(windows[:, :-1], windows[:, 1:])

    def step(self) -> Tensor:
        self.done += 1
        return super().step()

    def sample(self, length: int = 100, prompt: str = "ROMEO:\n") -> str:
        """The prompt, and how the model goes on."""
        decoder = Decoder(self.model, Sampling(temperature=0.8), max(self.tokenizer.vocabulary.tokens) + 1)
        given = self.tokenizer.encode(prompt)[-decoder.length :]
        said = list(decoder.generate(given, length, self.tokenizer.end_of_text))
        self.model.train()
        return self.tokenizer.decode(given + said).strip()

    # -- checkpoints -------------------------------------------------------------------------------------------------

    def save(self) -> None:
        """Write a checkpoint. Whenever this is cut short, the folder has the last whole one.

        The weights name the file of their state, and are replaced by one rename after it is there.
        """
        folder = self.checkpoint
        assert folder is not None, "made without a folder for checkpoints"
        for name in VOCABULARY:
            if not (folder / name).exists():
                io.save_text(read_text(self.words / name), folder / name)
        notes = {"step": self.done, "random": self.rng.bit_generator.state, **self.settings}
        state = STATE.format(self.done)
        io.safe_save(self.optimizer.state_dict(), folder / state, {"training": json.dumps(notes)})
        write_checkpoint(self.model, folder, {"training": state})
        _tidy(folder)

    def _resume(self, folder: Path, schedule: nn.WarmupCosine) -> None:
        weights = folder / WEIGHTS
        state = io.safe_metadata(weights).get("training")
        if state is None or not STATES.fullmatch(state):
            raise DataError(
                f"{weights} is no checkpoint of a training, and would be overwritten; start from it with "
                "--model-dir, and "
                "name another folder for checkpoints"
            )
        try:
            notes: dict[str, Any] = json.loads(io.safe_metadata(folder / state)["training"])
            self.rng.bit_generator.state = notes["random"]
            self.done = schedule.count = int(notes["step"])
            theirs = {name: notes[name] for name in self.settings}
            if self.done < 0:
                raise ValueError(f"{self.done} steps are done")
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as e:
            raise DataError(f"{folder / state} is damaged ({e}); remove it and {weights} to start anew") from e
        for name, mine in self.settings.items():
            if theirs[name] != mine:
                raise DataError(
                    f"{folder} was trained with --{name} {theirs[name]}, and this is {mine}; use the same, or "
                    "another folder"
                )
        try:
            self.optimizer.load_state_dict(io.safe_load(folder / state))
        except DataError:
            raise
        except UserError as e:
            raise DataError(f"{folder / state} is no state of this model's training: {e}") from e


class Outline(Training):
    """GPT-2 small in training as far as its graph tells: no vocabulary is read, and batches are of token 0."""

    model: nn.GPT
    unit = "tokens"

    def __init__(self, batch: int, lr: float) -> None:
        model = nn.GPT()
        optimizer = nn.AdamW(decayed(model.parameters(), 0.1), lr=lr, betas=(0.9, 0.95))
        super().__init__(model, optimizer, steps=1, batch=batch, tokens=CONTEXT, clip=1.0)

    def next_batch(self) -> tuple[Tensor]:
        """Windows of one token, int32[batch, window + 1]."""
        return (Tensor(np.zeros((self.batch, CONTEXT + 1), np.int32)),)

    def loss(self, windows: Tensor) -> Tensor:
        """That of `FineTuning`."""
        return self.model.loss(windows[:, :-1], windows[:, 1:])


def _prepare(folder: Path) -> None:
    """Make the folder, and raise DataError now if no checkpoint can be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        why = "it is there, and no folder" if isinstance(e, FileExistsError) else e.strerror or e
        raise DataError(f"cannot make the folder {folder}: {why}") from e
    try:
        files.check_replaceable(folder / WEIGHTS)
    except OSError as e:
        raise DataError(f"{folder / WEIGHTS} cannot be written: {e.strerror or e}; choose another folder") from e
    _tidy(folder)


def _tidy(folder: Path) -> None:
    """Remove what belongs to no checkpoint: states but that of the weights, and what killed processes left
    unfinished.
    """
    files.sweep(folder)
    with suppress(OSError, DataError):  # of what is wrong with them the one who reads them tells
        kept = io.safe_metadata(folder / WEIGHTS).get("training") if (folder / WEIGHTS).exists() else None
        for old in sorted(p for p in folder.iterdir() if STATES.fullmatch(p.name) and p.name != kept):
            with suppress(OSError, DataError):
                if "training" in io.safe_metadata(old):  # else it only has the name of one
                    old.unlink()


def make(
    *, steps: int = STEPS, batch: int = BATCH, seed: int = 1, lr: float = LR, words: Path | None = None,
    start: Path | None = None, checkpoint: Path | None = None, tokens: Path | None = None,
) -> FineTuning:  # fmt: skip
    """A training run. Without `words`, GPT-2's own vocabulary is fetched."""
    if words is None:
        words = [fetch(ASSETS[f"gpt2/{name}"]) for name in VOCABULARY][0].parent
    return FineTuning(steps, batch, seed, lr, words, start, checkpoint, tokens)


def outline(*, batch: int = BATCH, lr: float = LR) -> Outline:
    """A run of GPT-2 small to look at, which needs no file; made in `nn.init.blank`, no weights either."""
    return Outline(batch, lr)


if __name__ == "__main__":
    main(make)
