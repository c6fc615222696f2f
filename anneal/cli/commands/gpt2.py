"""`anneal gpt2` and `anneal data`: text of GPT-2, and files of its tokens."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

from anneal import progress, settings
from anneal.cli import _flags as flags, _output as out
from anneal.cli._flags import option, switch
from anneal.errors import DataError, UserError
from anneal.frozen import Json, Texts, frozen
from anneal.training import load_module

if TYPE_CHECKING:
    from anneal.inspect import PlanRecording

app = flags.alone()
gpt2 = flags.group("gpt2", "Generate text with GPT-2 small, or another checkpoint.")
tokens = flags.group("data", "Make files of tokens to train on.")
app.add_typer(gpt2)
app.add_typer(tokens)

WEIGHTS, VOCABULARY = "model.safetensors", ("vocab.json", "merges.txt")
WATCHED = 8  # tokens that --stream tells the chances of
WARM = 3  # the first token is the prefill's, with the second and the third the step is compiled and captured

Show = Callable[[str | None], None]  # a piece of text; None: that was the last


@gpt2.callback()
@tokens.callback()
def _group() -> None:
    """Make a group of what has one command."""


@frozen
class _Options(flags.Reporting):
    """The flags of `anneal gpt2 sample`."""

    prompt: flags.Prompt
    max_tokens: int = flags.number("Maximum number of new tokens.", default=100)
    greedy: bool = switch("--greedy", "Take the most probable token at each step.")
    temperature: flags.Temperature = 1.0
    top_k: int = flags.number("Sample from the N most probable tokens; 0: from all.", 0, default=40)
    seed: int = flags.seed("the sampling", default=0)
    device: flags.DeviceFlag = None
    adapter: flags.AdapterFlag = None
    model_dir: Path | None = option(
        "Directory of another checkpoint in Hugging Face's layout (model.safetensors).", "DIR"
    )
    plain: bool = switch("--plain", "Print no escape codes, even on a terminal.")
    stream: bool = switch("--stream", "Print a line of JSON per token, with its probability.")
    record: flags.Record = None


@dataclass(slots=True)
class _Run:
    """Measurements and text so far; times in seconds."""

    begun: float
    compiled: float  # what this process had spent on compiling before
    tokens: list[int] = field(default_factory=list)
    text: str = ""
    stop: str = "max-tokens"
    load: float = 0.0
    compile: float = 0.0
    prefill: float = 0.0
    first: float = 0.0  # from the start of the command to the first token
    ready: float = 0.0  # when token number WARM came
    end: float = 0.0  # when the last one came
    recorded: PlanRecording | None = None
    plan: int | None = None  # the one that made the last token
    grown: int = 0  # bytes of device memory asked for since token number WARM

    @property
    def per_token(self) -> float | None:
        """Seconds a token took once everything was compiled."""
        count = len(self.tokens) - WARM
        return (self.end - self.ready) / count if count > 0 else None


@flags.command(gpt2)
def sample(options: _Options) -> int:
    """Continue a text. Downloads GPT-2 small the first time, 548 MB. Ctrl-C stops and keeps the text so far."""
    from concurrent.futures import ThreadPoolExecutor

    from anneal.runtime import compile_seconds

    run = _Run(perf_counter(), compile_seconds())
    flags.check_recording(options.record)
    with flags.on_device(options.device, options.adapter):
        from anneal.backend import get_device

        # A driver takes its time to start: files are looked for and the tokeniser is read meanwhile.
        with ThreadPoolExecutor(1, "anneal-device") as beside:
            opening = beside.submit(get_device, settings.current().device)
            folder, words = places(options.model_dir)
            gpt2, tokenizer = load_module("gpt2"), _tokenizer(words)
            given = tokenizer.encode(options.prompt) or [tokenizer.end_of_text]
            device = opening.result()
        with settings.override(device=device.name):
            with progress.work("reading the weights"):
                model = gpt2.read_checkpoint(folder)
            sampling = gpt2.Sampling(options.greedy, options.temperature, options.top_k, options.seed)
            known = _known(tokenizer, model, words)
            decoder = gpt2.Decoder(model, sampling, known, min(WATCHED, known) if options.stream else 0)
            run.load = perf_counter() - run.begun - (compile_seconds() - run.compiled)
            if len(given) > decoder.length:
                raise UserError(
                    f"the prompt has {len(given)} tokens, and this model's context {decoder.length}; shorten the prompt"
                )
            _announce(options, device)
            show = _printer(options)
            kept = flags.recorded(options.record, "gpt2", texts=60)
            with kept as run.recorded, out.interrupts("this token") as stopping, _plans(run) as plans:
                _speak(options, run, decoder, tokenizer, given, show, stopping)
    if options.stream:
        out.json_line(event="done", tokens=len(run.tokens), stop=run.stop, text=run.text)
    elif options.as_json:
        out.json_report(_report(options, run, given, device, decoder, plans))
    else:
        out.data("")
        _close(run, decoder)
    return out.STOPPED if run.stop == "interrupted" else 0


# -- files -------------------------------------------------------------------------------------------------------------


def places(folder: Path | None, weights: bool = True) -> tuple[Path, Path]:
    """The folders of the weights and of the vocabulary: the one that was named, or the cache, filled if need be.

    Without `weights` only the vocabulary is looked for.
    """
    if folder is None:
        found = _fetched((WEIGHTS, *VOCABULARY) if weights else VOCABULARY)
        return found, found
    as_hugging_face = f"a folder with {WEIGHTS}, as Hugging Face lays it out"
    if not folder.is_dir():
        raise DataError(f"--model-dir {folder} is no folder; it is {as_hugging_face}")
    if weights and not (folder / WEIGHTS).is_file():
        raise DataError(f"{folder} has no {WEIGHTS}; --model-dir is {as_hugging_face}")
    missing = [name for name in VOCABULARY if not (folder / name).is_file()]
    if len(missing) == 1:
        there = next(n for n in VOCABULARY if n not in missing)
        raise DataError(f"{folder} has {there} and no {missing[0]}; give it both or none")
    return folder, _fetched(VOCABULARY) if missing else folder


def _tokenizer(folder: Path) -> Any:
    return load_module("gpt2").Tokenizer.read(*[folder / name for name in VOCABULARY])


def training_places(model: str, folder: Path | None, scratch: bool) -> dict[str, Path | None]:
    """The folders that the training of GPT-2 reads; none for another model."""
    if model != "gpt2":
        return {}
    start, words = places(folder, weights=not scratch)
    return {"words": words, "start": None if scratch else start}


def _fetched(names: Texts) -> Path:
    """The folder of GPT-2's own files, after a line about each."""
    from anneal.assets import ASSETS, fetch, verify

    for name in names:
        asset = ASSETS[f"gpt2/{name}"]
        there = verify(asset) is not None
        path = fetch(asset)
        out.message(f"fetch {name} ({out.sized(asset.bytes)}) {'cached' if there else 'sha ok'}")
    return path.parent


def _known(tokenizer: Any, model: Any, folder: Path) -> int:
    """The rows of the model's table that are tokens of the vocabulary; a table may be longer, for tiles' sake."""
    last = max(tokenizer.vocabulary.tokens)
    if last >= model.config.vocab_size:
        raise DataError(
            f"{folder / VOCABULARY[0]} has tokens up to {last}, and the model knows {model.config.vocab_size}: they "
            "do not "
            "belong together"
        )
    return int(last) + 1


# -- speaking ----------------------------------------------------------------------------------------------------------


@contextmanager
def _plans(run: _Run) -> Iterator[dict[str, set[Any]]]:
    """The plans that ran, by phase. Replays of a captured step run none."""
    from anneal.runtime import Launch, Step, observed

    seen: dict[str, set[Any]] = {"prefill": set(), "decode": set()}

    def observe(step: Step) -> None:
        if isinstance(step, Launch):
            seen["decode" if run.tokens else "prefill"].add(step.plan)

    with observed(observe):
        yield seen


def _speak(
    options: _Options, run: _Run, decoder: Any, tokenizer: Any, given: list[int], show: Show, stopping: list[int]
) -> None:
    """Generate, decode and show, and note when what happened."""
    from anneal.backend import get_device
    from anneal.runtime import compile_seconds, default_device

    device, stream = get_device(default_device()), tokenizer.stream()
    show(out.readable(options.prompt))
    before, begun = compile_seconds(), perf_counter()
    most = min(options.max_tokens, decoder.room(len(given)))
    run.stop = "max-tokens" if most == options.max_tokens else "context"
    for token in progress.told(decoder.generate(given, most, tokenizer.end_of_text), "writing", most):
        last, run.end = run.end or begun, perf_counter()
        run.tokens.append(token)
        if len(run.tokens) == 1:
            run.first = run.end - run.begun
            run.prefill = run.end - begun - (compile_seconds() - before)
        elif len(run.tokens) == WARM:
            run.ready, run.grown = run.end, -device.asked
        if run.recorded is not None:
            run.plan = run.recorded.mark()
        run.text += (piece := stream.feed(token))
        show(piece)
        if options.stream:
            _tell(run, decoder, tokenizer, piece, (run.end - last) * 1e3)
        if stopping:
            run.stop = "interrupted"
            break
    else:
        if len(run.tokens) < most:
            run.stop = "end of text"
    run.text += (piece := stream.flush())
    show(piece)
    show(None)
    run.compile = compile_seconds() - run.compiled
    run.grown = run.grown + device.asked if run.ready else 0


def _tell(run: _Run, decoder: Any, tokenizer: Any, piece: str, ms: float) -> None:
    """A token as an event: the text that it adds, its probability, other likely tokens, and its time."""
    chance, likely = decoder.choices()
    others = [{"id": n, "text": tokenizer.decode([n]), "chance": c} for n, c in likely]
    phase = "decode" if len(run.tokens) > 1 else "prefill"
    out.json_line(
        event="token", id=run.tokens[-1], text=piece, chance=chance, ms=round(ms, 3), phase=phase, likely=others,
        plan=run.plan,
    )  # fmt: skip


def _announce(options: _Options, device: Any) -> None:
    if options.stream:
        prompt = out.readable(options.prompt)
        out.json_line(event="prompt", prompt=prompt, device=device.name, adapter=device.adapter)
    if options.as_json or options.stream:
        return
    top_k = options.top_k or "all"
    mode = "greedy" if options.greedy else f"sampling, seed {options.seed}"
    facts = f"max-tokens: {options.max_tokens} · temperature: {options.temperature:.2f} · top-k: {top_k}"
    out.message(f"device: {device}")
    out.message(f"prompt: {out.harmless(out.readable(options.prompt))}")
    out.message(f"mode: {mode} · {facts}")
    out.message("---")


def _printer(options: _Options) -> Show:
    """Pieces of text to stdout; the prompt fainter than what follows, on a terminal."""
    if options.as_json or options.stream:
        return lambda piece: None
    plain = options.plain or not sys.stdout.isatty() or out.console().is_dumb_terminal or out.console().no_color
    flow = out.Flow()
    styles = iter(["" if plain else "2"])

    def show(piece: str | None) -> None:
        if piece is None:
            flow.end()
        elif piece:
            flow.add(out.harmless(piece), next(styles, ""))

    return show


def _close(run: _Run, decoder: Any) -> None:
    """A line that says why the text ended, and how fast it came."""
    if run.stop == "end of text":
        out.message("the text ended here: <|endoftext|>")
    elif run.stop == "context":
        out.message(f"the model's context ended here: {decoder.length} tokens")
    rate = f", then {1 / run.per_token:,.0f} tokens/s" if run.per_token else ""
    out.message(f"{len(run.tokens)} tokens, the first after {run.first:.2f} s{rate}")


def _report(
    options: _Options, run: _Run, given: list[int], device: Any, decoder: Any, plans: dict[str, set[Any]]
) -> Json:
    return {
        "prompt": out.readable(options.prompt),
        "prompt_tokens": given,
        "tokens": run.tokens,
        "text": run.text,
        "stop": run.stop,
        "device": device.name,
        "adapter": device.adapter,
        "parameters": decoder.model.num_parameters(),
        "context": decoder.length,
        "seconds": {
            **{name: round(getattr(run, name), 4) for name in ("load", "compile", "prefill")},
            "first_token": round(run.first, 4),
            "per_token": run.per_token and round(run.per_token, 7),
        },
        "plans": {phase: len(found) for phase, found in plans.items()},
        "memory": {"host_peak_bytes": _peak(), "device_bytes": device.held(), "grown_while_decoding": run.grown},
    }


def _peak() -> int | None:
    """The most memory that this process has had, mapped files included; None where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


@frozen
class _Text(flags.Reporting):
    """The flags of `anneal data tokenize`."""

    text: Annotated[Path, flags.argument("A text, UTF-8.", "FILE", callback=flags.openable)]
    output: Path | None = option("File to write; .npy: a NumPy array; default: FILE.bin.")
    model_dir: Path | None = option("Directory of another vocabulary.", "DIR")


@flags.command(tokens)
def tokenize(asked: _Text) -> None:
    """Write a text as GPT-2's tokens, in llm.c's layout, for gpt2 to train on."""
    from anneal.training import write_tokens

    text = asked.text
    place = asked.output or text.with_name(f"{text.name}.bin")
    flags.check_writable(place)
    _, words = places(asked.model_dir, weights=False)
    with progress.work("encoding the text"):
        tokens = _tokenizer(words).encode(text.read_bytes())
    write_tokens(place, tokens)
    asked.tell({"file": str(place), "tokens": len(tokens)}, f"{place}: {len(tokens):,} tokens")
