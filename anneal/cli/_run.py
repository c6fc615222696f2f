"""`anneal run`: models that have learnt already."""

from __future__ import annotations

import codecs
import time
from dataclasses import dataclass
from pathlib import Path

from anneal import progress, settings
from anneal.cli._choices import check_writable, choose_device, may_download, write_file
from anneal.cli._interrupts import STOPPED, interrupts
from anneal.cli._models import load_module
from anneal.cli._output import Flow, data, harmless, json_report, message, readable, show
from anneal.cli._reporters import picture_kept
from anneal.errors import UserError

__all__ = ["Story", "llama2c", "resnet9"]


@dataclass(frozen=True, slots=True)
class Story:
    """The flags of `anneal run llama2c`."""

    model: Path
    prompt: str = ""
    tokenizer: Path | None = None
    max_tokens: int | None = None
    temperature: float = 1.0
    top_p: float = 0.9
    seed: int = 1
    device: str | None = None
    adapter: str | None = None
    as_json: bool = False


def llama2c(story: Story) -> int:
    """Tell a story; the exit code: 0, or 130 when Ctrl-C stopped it."""
    example = load_module("llama2c")
    sampling = example.Sampling(story.temperature, story.top_p, story.seed)
    with settings.override(**choose_device(story.device, story.adapter)):
        from anneal.backend import get_device

        device = get_device(settings.current().device)
        with settings.override(device=device.name):
            with progress.work("reading the weights"):
                model = example.read_model(story.model)
            words = example.Words.read(story.tokenizer or story.model.parent / "tokenizer.bin", model.config.vocab_size)
            given = words.encode(story.prompt)
            most = story.max_tokens or model.config.max_seq_len
            if len(given) > model.config.max_seq_len:
                raise UserError(
                    f"the prompt has {len(given)} tokens, and this model's context {model.config.max_seq_len}; "
                    "shorten it"
                )
            c = model.config
            if not story.as_json:
                message(
                    f"model   {story.model}: {c.n_layers} layers, {c.n_heads} heads, width {c.dim}, context "
                    f"{c.max_seq_len}, {model.num_parameters():,} parameters, on {device.name}"
                )
            decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a character may take several tokens
            tokens: list[int] = []
            text, flow = "", Flow()

            def say(piece: str) -> None:
                nonlocal text
                text += piece
                if piece and not story.as_json:
                    flow.add(harmless(piece))

            begun = ready = time.perf_counter()
            stopped = False
            with interrupts("this token") as stopping:
                for token in progress.told(example.Story(model).tell(given, most, sampling), "writing", most):
                    tokens.append(token)
                    say(decoder.decode(words.piece(token, tokens[-2] if len(tokens) > 1 else given[0])))
                    if len(tokens) == 3:  # the first steps compile and capture
                        ready = time.perf_counter()
                    if stopping:
                        stopped = True
                        break
            say(decoder.decode(b"", final=True))
    seconds = time.perf_counter() - (ready if len(tokens) > 3 else begun)
    rate = (len(tokens) - 3 if len(tokens) > 3 else len(tokens)) / seconds
    if story.as_json:
        json_report(
            {"model": str(story.model), "device": device.name, "prompt": readable(story.prompt), "text": text,
             "tokens": tokens, "tokens_per_second": round(rate, 2), "stopped": stopped}
        )  # fmt: skip
    else:
        flow.end()
        data("")
        message(f"{len(tokens)} tokens, {rate:,.0f} tokens/s")
    return STOPPED if stopped else 0


def resnet9(
    weights: Path | None,
    count: int,
    seed: int,
    picture: Path | None,
    *,
    device: str | None,
    adapter: str | None,
    download: bool,
    as_json: bool,
) -> None:
    """Classify test pictures, print what came out, and show the first; write them to `picture`, if that is given."""
    from anneal.training import downloads, png

    if picture is not None:
        check_writable(picture)
    with settings.override(**choose_device(device, adapter)):
        from anneal.backend import get_device

        example = load_module("resnet9")
        if weights is not None:
            example.trained(weights)  # before anything that takes long
        may = may_download(example, download)
        opened = get_device(settings.current().device)
        with settings.override(device=opened.name), downloads(may):
            text, pixels = example.run(weights, count, seed)
    if picture is not None:
        write_file(picture, png(pixels))
    if as_json:
        json_report({"device": opened.name, "text": text, "picture": str(picture) if picture else None})
        return
    data(text)
    show(pixels)
    message(picture_kept(picture))
