"""`anneal run text`: an example that reads characters goes on with a text, from weights that a training saved."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anneal import settings
from anneal.cli._choices import check_writable, choose_device
from anneal.cli._interrupts import STOPPED, interrupts
from anneal.cli._models import load_example
from anneal.cli._output import data, harmless, json_line, json_report, message, readable
from anneal.errors import SettingError, UserError
from anneal.inspect import Recording, recording
from anneal.training import SPEAKING, suggest

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Options", "speak"]

WATCHED = 8  # tokens whose chances --stream tells


@dataclass(frozen=True, slots=True)
class Options:
    """The flags of `anneal run text`."""

    model: str
    prompt: str
    weights: Path | None
    max_tokens: int
    temperature: float
    top_k: int
    greedy: bool
    seed: int
    device: str | None
    adapter: str | None
    record: Path | None
    stream: bool
    as_json: bool


@dataclass(slots=True)
class Reader:
    """A model of characters: `characters` by their numbers; what it reads at the start, and the character that ends a
    text, if one does, after which another begins.
    """

    training: Any
    characters: Sequence[str]
    context: int
    start: tuple[int, ...]
    end: int | None
    text: list[int] = field(default_factory=list)

    def logits(self) -> np.ndarray[Any, Any]:
        """The logits of the character after the text."""
        import numpy as np

        from anneal.tensor import Tensor, no_grad

        recent = (self.text or [*self.start])[-self.context :]
        window = np.zeros((1, self.context), np.int32)
        window[0, : len(recent)] = recent
        with no_grad():
            found: np.ndarray[Any, Any] = self.training.read(Tensor(window)).numpy()[0, len(recent) - 1]
        return found

    def take(self, token: int) -> str:
        """Add a character; the text that it is."""
        self.text = [*self.start] if token == self.end else [*self.text, token]
        return "\n" if token == self.end else self.characters[token]


@dataclass(frozen=True, slots=True)
class Token:
    """A character that was said, and what else was likely, with their chances."""

    id: int
    text: str
    chance: float
    likely: tuple[tuple[int, float], ...]
    ms: float


def speak(options: Options) -> int:
    """Say how the text goes on; the exit code: 0, or 130 when Ctrl-C stopped it."""
    if options.model not in SPEAKING:
        raise suggest("model that speaks", options.model, SPEAKING)
    if not 0 < options.temperature < float("inf"):
        raise SettingError(
            f"--temperature {options.temperature:g} is not a number above 0; --greedy takes the most likely character"
        )
    if options.record is not None:
        if options.record.suffix != ".zip":
            raise UserError(f"--record writes a .zip file, not {options.record.name}")
        check_writable(options.record)
    with settings.override(**choose_device(options.device, options.adapter)):
        from anneal.backend import get_device

        device = get_device(settings.current().device)
        with settings.override(device=device.name):
            reader = _reader(options)
            if options.stream:
                adapter = device.describe().get("adapter")
                json_line(event="prompt", prompt=readable(options.prompt), device=device.name, adapter=adapter)
            return _tell(options, reader)


def _reader(options: Options) -> Reader:
    from anneal.tensor.io import safe_open

    example = load_example(options.model)
    training: Any = example.make(steps=1, batch=1, seed=1, lr=example.LR)
    if options.weights is None:
        message(f"{options.model} has not learnt anything: --weights FILE, which `anneal train --save FILE` writes")
    else:
        training.model.load_state_dict(safe_open(options.weights))
    training.model.eval()
    characters = getattr(training, "alphabet", None)
    if characters is None:  # names: 0 is the mark before and after one
        letters = [".", *"abcdefghijklmnopqrstuvwxyz"]
        reader = Reader(training, letters, training.held_back.shape[1] - 1, (0,), 0)
    else:
        reader = Reader(training, characters, training.context, (characters.index("\n"),), None)
    strange = sorted(set(options.prompt) - set(reader.characters))
    if strange:
        known = "".join(reader.characters).replace("\n", "")
        raise UserError(f"{options.model} does not know {strange[0]!r}; it knows {known}")
    reader.text = [*reader.start, *[reader.characters.index(c) for c in options.prompt]]
    return reader


def _said(options: Options, reader: Reader) -> Iterator[Token]:
    import numpy as np

    rng = np.random.default_rng(options.seed)
    for _ in range(options.max_tokens):
        begun = time.perf_counter()
        scaled = reader.logits().astype(np.float64) / options.temperature
        chances = np.exp(scaled - scaled.max())
        chances /= chances.sum()
        order = np.argsort(-chances, kind="stable")
        if options.greedy:
            token = int(order[0])
        else:
            among = order[: options.top_k or None]
            token = int(rng.choice(among, p=chances[among] / chances[among].sum()))
        likely = tuple([(int(n), float(chances[n])) for n in order[:WATCHED]])
        text = reader.take(token)
        yield Token(token, text, float(chances[token]), likely, (time.perf_counter() - begun) * 1e3)


def _tell(options: Options, reader: Reader) -> int:
    recorder, recorded, plan = ExitStack(), None, None
    if options.record is not None:
        recorded = recorder.enter_context(recording(options.model, later=True))
    said: list[Token] = []
    if not (options.stream or options.as_json):
        data(harmless(options.prompt), end="")
    stopped = False
    with recorder, interrupts("this character") as stopping:
        for token in _said(options, reader):
            said.append(token)
            if recorded is not None:
                plan = recorded.mark()
            if options.stream:
                _stream(token, reader, plan)
            elif not options.as_json:
                data(harmless(token.text), end="")
            if stopping:
                stopped = True
                break
    text = "".join([t.text for t in said])
    _keep(options, recorded)
    if options.stream:
        json_line(event="done", tokens=len(said), stop="interrupted" if stopped else "max-tokens", text=text)
    elif options.as_json:
        json_report({"model": options.model, "prompt": readable(options.prompt), "text": text, "stopped": stopped})
    else:
        data("")
    return STOPPED if stopped else 0


def _stream(token: Token, reader: Reader, plan: int | None) -> None:
    likely = [{"id": n, "text": reader.characters[n], "chance": c} for n, c in token.likely]
    json_line(
        event="token", id=token.id, text=token.text, chance=token.chance, ms=round(token.ms, 3), phase="read",
        likely=likely, plan=plan,
    )  # fmt: skip


def _keep(options: Options, recorded: Recording | None) -> None:
    if options.record is not None and recorded is not None:
        recorded.look()
        recorded.save(options.record)
