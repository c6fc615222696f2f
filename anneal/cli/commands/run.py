"""`anneal run`."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

from anneal import progress
from anneal.cli import _flags as flags, _output as out
from anneal.cli._flags import command, number, option
from anneal.cli._reporters import picture_kept
from anneal.errors import UserError
from anneal.frozen import Json, frozen
from anneal.training import SPEAKING, load_example, load_module, suggest

if TYPE_CHECKING:
    import numpy as np

app = flags.group("run", "Run a trained model.")

WATCHED = 8  # tokens whose chances --stream tells


@frozen
class Story(flags.Reporting, flags.OnDevice):
    """The flags of `anneal run llama2c`."""

    model: Annotated[
        Path,
        flags.argument("Checkpoint in llama2.c's first format.", "MODEL.bin", callback=flags.openable),
    ]
    prompt: flags.Prompt = ""
    tokenizer: Path | None = option("Tokenizer; default: tokenizer.bin beside the model.", callback=flags.openable)
    max_tokens: int | None = number("Maximum number of tokens, with the prompt's; default: the context length.")
    temperature: float = option("Sampling temperature; lower is less random, 0: greedy.", "X", min=0, default=1.0)
    top_p: float = option(
        "Nucleus sampling: sample from the most probable tokens whose probabilities sum to X.", "X", default=0.9
    )
    seed: int = flags.seed("the sampling", default=1)


@command(app)
def llama2c(story: Story) -> int:
    """Generate a story with a llama2.c checkpoint. Ctrl-C stops and keeps the text so far."""
    example = load_module("llama2c")
    sampling = example.Sampling(story.temperature, story.top_p, story.seed)
    with flags.opened(story.device, story.adapter) as device:
        with progress.work("reading the weights"):
            model = example.read_model(story.model)
        words = example.Words.read(story.tokenizer or story.model.parent / "tokenizer.bin", model.config.vocab_size)
        given = words.encode(story.prompt)
        most = story.max_tokens or model.config.max_seq_len
        if len(given) > model.config.max_seq_len:
            raise UserError(
                f"the prompt has {len(given)} tokens, and this model's context {model.config.max_seq_len}; shorten it"
            )
        c = model.config
        if not story.as_json:
            out.message(
                f"model   {story.model}: {c.n_layers} layers, {c.n_heads} heads, width {c.dim}, context "
                f"{c.max_seq_len}, {model.num_parameters():,} parameters, on {device.name}"
            )
        decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a character may take several tokens
        tokens = []
        text, flow = "", out.Flow()

        def say(piece: str) -> None:
            nonlocal text
            text += piece
            if piece and not story.as_json:
                flow.add(out.harmless(piece))

        begun = ready = perf_counter()
        with out.interrupts("this token") as stopping:
            for token in progress.told(example.Story(model).tell(given, most, sampling), "writing", most):
                tokens.append(token)
                say(decoder.decode(words.piece(token, tokens[-2] if len(tokens) > 1 else given[0])))
                if len(tokens) == 3:  # the first steps compile and capture
                    ready = perf_counter()
                if stopping:
                    break
        stopped = bool(stopping)
        say(decoder.decode(b"", final=True))
    seconds = perf_counter() - (ready if len(tokens) > 3 else begun)
    rate = (len(tokens) - 3 if len(tokens) > 3 else len(tokens)) / seconds
    if story.as_json:
        out.json_report(
            {"model": str(story.model), "device": device.name, "prompt": out.readable(story.prompt), "text": text,
             "tokens": tokens, "tokens_per_second": round(rate, 2), "stopped": stopped}
        )  # fmt: skip
    else:
        flow.end()
        out.data("")
        out.message(f"{len(tokens)} tokens, {rate:,.0f} tokens/s")
    return out.STOPPED if stopped else 0


@frozen
class _Options(flags.Reporting):
    """The flags of `anneal run text`."""

    model: Annotated[str, flags.argument(f"Text model: {', '.join(SPEAKING)}.", "MODEL")]
    prompt: flags.Prompt = ""
    weights: flags.Weights = None
    max_tokens: int = number("Number of new characters.", default=200)
    temperature: flags.Temperature = 1.0
    top_k: int = number("Sample from the N most probable; 0: from all.", 0, default=0)
    greedy: bool = flags.switch("--greedy", "Take the most probable character at each step.")
    seed: int = flags.seed("the sampling", default=0)
    device: flags.DeviceFlag = None
    adapter: flags.AdapterFlag = None
    record: flags.Record = None
    stream: bool = flags.switch("--stream", "Print a line of JSON per character, with its probability.")


@dataclass(slots=True)
class CharacterModel:
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
        """Add a character to the text; returns it as text."""
        self.text = [*self.start] if token == self.end else [*self.text, token]
        return "\n" if token == self.end else self.characters[token]


@command(app, "text")
def speak(options: _Options) -> int:
    """Continue a text, character by character, with a trained example model. Ctrl-C stops."""
    if options.model not in SPEAKING:
        raise suggest("text model", options.model, SPEAKING)
    flags.check_recording(options.record)
    with flags.opened(options.device, options.adapter) as device:
        reader = _reader(options)
        if options.stream:
            prompt = out.readable(options.prompt)
            out.json_line(event="prompt", prompt=prompt, device=device.name, adapter=device.adapter)
        return _tell(options, reader)


def _reader(options: _Options) -> CharacterModel:
    from anneal.tensor.io import safe_open

    example = load_example(options.model)
    training: Any = example.make(steps=1, batch=1, seed=1, lr=example.LR)
    if options.weights is None:
        out.message(f"{options.model} has not learnt anything: --weights FILE, which `anneal train --save FILE` writes")
    else:
        training.model.load_state_dict(safe_open(options.weights))
    training.model.eval()
    characters = getattr(training, "alphabet", None)
    if characters is None:  # names: 0 is the mark before and after one
        letters = [".", *"abcdefghijklmnopqrstuvwxyz"]
        reader = CharacterModel(training, letters, training.held_back.shape[1] - 1, (0,), 0)
    else:
        reader = CharacterModel(training, characters, training.context, (characters.index("\n"),), None)
    strange = sorted(set(options.prompt) - set(reader.characters))
    if strange:
        known = "".join(reader.characters).replace("\n", "")
        raise UserError(f"{options.model} does not know {strange[0]!r}; it knows {known}")
    reader.text = [*reader.start, *[reader.characters.index(c) for c in options.prompt]]
    return reader


def _said(options: _Options, reader: CharacterModel) -> Iterator[Json]:
    """The generated characters, each with its probability, and other likely ones with theirs."""
    import numpy as np

    rng = np.random.default_rng(options.seed)
    for _ in range(options.max_tokens):
        begun = perf_counter()
        scaled = reader.logits().astype(np.float64) / options.temperature
        chances = np.exp(scaled - scaled.max())
        chances /= chances.sum()
        order = np.argsort(-chances, kind="stable")
        if options.greedy:
            token = int(order[0])
        else:
            among = order[: options.top_k or None]
            token = int(rng.choice(among, p=chances[among] / chances[among].sum()))
        likely = [
            {"id": n, "text": reader.characters[n], "chance": float(chances[n])} for n in map(int, order[:WATCHED])
        ]
        ms = round((perf_counter() - begun) * 1e3, 3)
        yield {"id": token, "text": reader.take(token), "chance": float(chances[token]), "ms": ms, "likely": likely}


def _tell(options: _Options, reader: CharacterModel) -> int:
    said = []
    plan = None
    if not (options.stream or options.as_json):
        out.data(out.harmless(options.prompt), end="")
    with flags.recorded(options.record, options.model) as recorded, out.interrupts("this character") as stopping:
        for token in _said(options, reader):
            said.append(token["text"])
            if recorded is not None:
                plan = recorded.mark()
            if options.stream:
                out.json_line(event="token", **token, phase="read", plan=plan)
            elif not options.as_json:
                out.data(out.harmless(token["text"]), end="")
            if stopping:
                break
    text, stopped = "".join(said), bool(stopping)
    if options.stream:
        out.json_line(event="done", tokens=len(said), stop="interrupted" if stopped else "max-tokens", text=text)
    elif options.as_json:
        out.json_report(
            {"model": options.model, "prompt": out.readable(options.prompt), "text": text, "stopped": stopped}
        )
    else:
        out.data("")
    return out.STOPPED if stopped else 0


@frozen
class _Pictures(flags.Reporting):
    """The flags of `anneal run resnet9`."""

    weights: Path | None = option(
        "Trained weights, as `anneal train resnet9 --save FILE` writes them.", callback=flags.openable
    )
    count: int = number("Number of test pictures to classify.", most=10_000, default=256)
    seed: int = flags.seed("shapes, and of weights if none are given", default=1)
    picture: Path | None = option("Write the pictures to this file.", "FILE.png")
    device: flags.DeviceFlag = None
    adapter: flags.AdapterFlag = None
    download: flags.Download = False


@command(app)
def resnet9(asked: _Pictures) -> None:
    """Classify test pictures of CIFAR-10, or generated shapes without it."""
    from anneal.training import downloads, png

    weights, picture = asked.weights, asked.picture
    flags.check_writable(picture)
    with flags.opened(asked.device, asked.adapter) as device:
        example = load_module("resnet9")
        if weights is not None:
            example.trained(weights)  # before anything that takes long
        with downloads(flags.may_download(example, asked.download)):
            text, pixels = example.run(weights, asked.count, asked.seed)
    if picture is not None:
        flags.write_file(picture, png(pixels))
    if asked.as_json:
        out.json_report({"device": device.name, "text": text, "picture": picture and str(picture)})
        return
    out.data(text)
    out.show(pixels)
    out.message(picture_kept(picture))
