"""`anneal train`."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from anneal import settings
from anneal.cli import _flags as flags
from anneal.cli._flags import check_writable, may_download, number, on_device, option, write_file
from anneal.cli._output import STOPPED, console, going_on, interrupts, message
from anneal.cli._reporters import JsonLines, Picture, PlainLines, Progress, Reporter, Slow, Start, picture_kept
from anneal.cli.commands.gpt2 import training_places
from anneal.errors import SettingError, UserError
from anneal.frozen import frozen
from anneal.progress import work
from anneal.training import DRAWING, Trainable, check_model, load_example

if TYPE_CHECKING:
    from concurrent.futures import Future

    from anneal.cli._reporters import Bundle
    from anneal.runtime import Launch, Meter

app = flags.alone()
T = TypeVar("T")

_AHEAD = 64  # steps that are launched before their losses are read
_TOLD = 32  # steps between exchanges of the processes' statistics
_LOOK_S = 0.25  # between two looks at the losses: each wakes whoever shows them


@frozen
class _Options(flags.Reporting):
    """The flags of `anneal train`; None means the example's own default."""

    model: flags.Model
    steps: int | None = number("Optimiser steps; default: the example's.")
    batch: flags.Batch = None
    seed: int = flags.seed("weights, batches and sampling", default=1)
    lr: float | None = option("Peak learning rate; default: the example's.", "X")
    precision: str = option(
        "Dtype of matrix products: float32, float16 or bfloat16 (autocast).", "DTYPE", default="float32"
    )
    log_every: int = number("Steps between log lines.", default=100)
    device: flags.DeviceFlag = None
    adapter: flags.AdapterFlag = None
    plain: bool = flags.switch("--plain", "Print plain lines, even on a terminal.")
    save: Path | None = option("Write the trained weights as safetensors.")
    start: Path | None = option("Start from the weights that --save wrote.", callback=flags.openable)
    picture: Path | None = option("Write the model's picture to this file.", "FILE.png")
    model_dir: Path | None = option("gpt2: start from the checkpoint in DIR.", "DIR")
    tokens: Path | None = option("gpt2: train on a file of tokens, or on those in a folder.", "PATH")
    scratch: flags.Scratch = False
    checkpoint: Path | None = option("Save checkpoints in DIR; resume from the one there.", "DIR")
    checkpoint_every: int = number("Steps between checkpoints.", default=200)
    bundle: bool = flags.switch("--bundle", "Save config, losses, graph and kernels in a new folder in runs/.")
    vitals: bool = flags.switch(
        "--vitals", "With --json or --bundle: learning rate, gradient norm, memory by step; the slowest kernels."
    )
    samples: int = number("Number of samples to show during training.", 0, 1000, default=0)
    download: flags.Download = False
    wire: str | None = option("With several processes: gradients travel as float16 or bfloat16.", "DTYPE")


def _beside(call: Callable[[], T]) -> Future[T]:
    """The result to come of a call in another thread, which nobody waits for after Ctrl-C: it may want a module that
    the interrupted import has not let go of."""
    from concurrent.futures import Future

    found: Future[T] = Future()

    def called() -> None:
        try:
            found.set_result(call())
        except BaseException as error:
            found.set_exception(error)

    threading.Thread(target=called, name="anneal-device", daemon=True).start()
    return found


@flags.command(app, cls=flags.ModelCommand)
def train(options: _Options) -> int:
    """Train an example model, then show a sample. Ctrl-C stops early, with the sample."""
    from anneal.cli._reporters import Bundle, Several

    _check(options)
    with ExitStack() as stack:
        rank, options = _joined(options)
        stack.enter_context(on_device(options.device, options.adapter))
        from anneal.backend import get_device
        from anneal.training import downloads

        # A driver takes its time to start: the modules of the example are imported meanwhile.
        opening = _beside(lambda: get_device(settings.current().device))
        example = load_example(options.model)
        device = opening.result()
        stack.enter_context(settings.override(device=device.name))
        steps = options.steps or example.STEPS
        lr = options.lr or example.LR
        batch = options.batch or example.BATCH
        if options.download and not hasattr(example, "DOWNLOADS"):
            raise SettingError(f"--download is for what learns from a download, and {options.model} does not")
        stack.enter_context(downloads(may_download(example, options.download)))
        with work(f"making {options.model} and its data"):
            training = example.make(steps=steps, batch=batch, seed=options.seed, lr=lr, **_places(options))
        if options.start is not None:
            from anneal.tensor.io import safe_open

            training.model.load_state_dict(safe_open(options.start))
        _compute_in(training, options)
        keep, before = _checkpoint(training, options)
        reporter, bundle = Reporter() if rank else choose_reporter(options), None
        if (options.vitals or reporter.measures) and hasattr(training, "watch"):
            training.watch()
        start = Start(
            model=options.model, info=training.info, data=training.data, device=device.name,
            adapter=device.adapter, params=sum(p.numel() for p in training.model.parameters()),
            steps=steps, batch=training.batch, seed=options.seed, lr=lr, unit=training.unit,
            examples_per_step=training.examples_per_step, checkpoint=options.checkpoint, before=before,
        )  # fmt: skip
        progress = Progress(before=before, timing=reporter.measures or options.vitals)
        if not rank and (options.bundle or settings.current().bundle):
            bundle = Bundle(options.model, {k: v for k, v in asdict(options).items() if k != "quiet"})
            reporter = Several(reporter, bundle)
        kept = options.save or options.checkpoint or options.picture or bundle
        stack.enter_context(going_on(kept is not None))
        try:
            reporter.tell("start", start)
            code = _run(options, training, steps, reporter, progress, bundle, keep)
        except BaseException as error:
            if bundle is not None:
                bundle.finish(error)
            raise
        finally:
            reporter.tell("close")
        if bundle is not None:
            message(f"bundle  {bundle.finish()}")
        return code


def _compute_in(training: Any, options: _Options) -> None:
    """Have the model trained, and gradients sent, in the precisions that the command line asks for."""
    training.wire = options.wire
    if options.precision == "float32":
        return
    if not hasattr(training, "compute_in"):
        raise SettingError(f"--precision is for models that anneal.training.Training trains; {options.model} is none")
    training.compute_in(options.precision)


def _joined(options: _Options) -> tuple[int, _Options]:
    """The number of this process among those that train together, and its flags: the first tells and writes for all."""
    from anneal.distributed import init, started_ranks

    rank = init().rank if started_ranks() > 1 else 0
    return rank, replace(options, save=None, picture=None, bundle=False, samples=0) if rank else options


def _statistics(training: Any, progress: Progress, last: bool = False) -> list[dict[str, float]]:
    """For each process: the median step, the part of the time that it waited for others, and the bytes that it sent in
    a step. Empty if there is one process. At the `last` time with all times of steps.
    """
    group = training.group
    if group.size == 1:
        return []
    import numpy as np

    whole = max(1e-9, sum(progress.times) / 1e3)
    mine = [progress.median_ms, group.waited / whole, group.sent / max(1, len(progress.losses))]
    found, *times = group.all_gather([np.array(mine), *([np.array(progress.times)] if last else [])])
    if last:
        progress.rank_times = times[0].tolist()
    return [dict(zip(("median_ms", "waiting", "sent_bytes"), map(float, row), strict=True)) for row in found]


def _checkpoint(training: Any, options: _Options) -> tuple[Callable[[int], None], int]:
    """The function that saves the training after so many steps, and the number of those that are done."""
    if options.checkpoint is None:
        return (lambda step: None), 0
    if hasattr(training, "save"):  # GPT-2's are as others write them
        return (lambda step: None if training.group.rank else training.save()), training.done
    from anneal.training import Checkpoint

    kept = Checkpoint(
        training, options.checkpoint, batch=training.batch, seed=options.seed, lr=training.optimizer.defaults["lr"]
    )
    return kept.save, kept.resume()


def _check(options: _Options) -> None:
    """AnnealError for flags that do not go together, and for files that cannot be written."""
    check_model(options.model)
    if options.lr is not None and not (math.isfinite(options.lr) and options.lr > 0):
        raise SettingError(f"--lr {options.lr:g} is not a learning rate; it must be a number above 0")
    if options.model != "gpt2" and (options.model_dir or options.scratch or options.tokens):
        raise SettingError(f"--model-dir, --scratch and --tokens are for gpt2, not for {options.model}")
    if options.start is not None and options.model == "gpt2":
        raise SettingError("--start is for the small examples; gpt2 starts from --model-dir, or from its --checkpoint")
    if options.picture is not None and options.model not in DRAWING:
        raise SettingError(
            f"--picture is for what makes pictures ({', '.join(DRAWING)}), and {options.model} makes none"
        )
    if options.wire not in (None, "float16", "bfloat16"):
        raise SettingError(f"--wire is float16 or bfloat16, not {options.wire}")
    check_writable(options.save, options.picture)


def _places(options: _Options) -> dict[str, Path | None]:
    """The folders that GPT-2's training reads and writes."""
    found = training_places(options.model, options.model_dir, options.scratch)
    return found and {**found, "checkpoint": options.checkpoint, "tokens": options.tokens}


def choose_reporter(options: _Options) -> Reporter:
    """JSON lines if asked for; the dashboard on a terminal that can redraw; else plain lines."""
    if options.as_json:
        return JsonLines()
    if options.plain or options.quiet or not sys.stdout.isatty() or console().is_dumb_terminal:
        return PlainLines(0 if options.quiet else options.log_every)
    from anneal.cli._dashboard import Dashboard

    return Dashboard()


def _run(
    options: _Options, training: Any, steps: int, reporter: Reporter, progress: Progress, bundle: Bundle | None,
    keep: Callable[[int], None],
) -> int:  # fmt: skip
    from anneal.runtime import compile_seconds

    compiled = compile_seconds()
    with interrupts("this step") as stop:
        _steps(options, training, steps, reporter, progress, stop, keep)
        progress.compile_s = compile_seconds() - compiled
        progress.stopped = bool(stop) and progress.count < steps
        if options.save is not None:  # before anything that can fail, or be stopped
            from anneal.tensor.io import safe_save

            safe_save(training.model.state_dict(), options.save)
    progress.ranks = _statistics(training, progress, last=True)
    if training.group.rank:
        return 0
    reporter.tell("ended", progress)
    with work("sampling"):
        progress.sample, progress.picture = training.sample(), _draw(training, options)
    _describe(options, training, progress, bundle)
    reporter.tell("done", progress)
    if progress.picture is not None:
        message(picture_kept(progress.picture.path))
    if options.save is not None:
        message(f"saved   {options.save}")
    return STOPPED if progress.stopped else 0


def _steps(
    options: _Options, training: Any, steps: int, reporter: Reporter, progress: Progress, stop: list[int],
    keep: Callable[[int], None],
) -> None:  # fmt: skip
    """Do the steps that are left, or those until `stop`."""
    every, kernels, told = options.checkpoint_every, _Kernels() if progress.timing else None, 4
    shown_at = {steps * (n + 1) // (options.samples + 1) for n in range(options.samples)} - {0, steps}
    with work("training", steps) as going:
        going.resume(progress.count)
        while progress.count < steps and not stop:
            left = steps - progress.count
            if options.checkpoint is not None:
                left = min(left, every - progress.count % every)
            left = min([left, *[at - progress.count for at in shown_at if at > progress.count]])
            if training.group.size > 1:  # all processes tell of theirs after the same step
                left = min(left, _TOLD - progress.count % _TOLD)
            # the steps that compile are waited for one by one
            most = min(left, _AHEAD) if len(progress.losses) >= 2 else 1
            _advance(training, progress, most, stop, reporter, kernels.meter if kernels else None)
            going.at(progress.count)
            if training.group.size > 1 and not progress.count % _TOLD:
                progress.ranks = _statistics(training, progress)
                reporter.tell("ranked", progress)
            if options.checkpoint is not None and (progress.count == steps or not progress.count % every or stop):
                keep(progress.count)
                reporter.tell("saved", progress, options.checkpoint)
            if kernels is not None and len(progress.losses) >= told and kernels.note(progress):
                told = max(told, len(progress.losses)) * 4
                reporter.tell("timed", progress)
            if progress.count in shown_at and not stop:
                progress.sample, progress.picture = training.glimpse(), _draw(training, options, progress.count)
                reporter.tell("sampled", progress)
    if kernels is not None and kernels.note(progress):
        reporter.tell("timed", progress)


def _describe(options: _Options, training: Any, progress: Progress, bundle: Bundle | None) -> None:
    """Count the nodes of a step, and keep what a bundle has of it."""
    from anneal.backend import get_device
    from anneal.distributed import Alone
    from anneal.inspect import step_graph
    from anneal.schedule import graph, plan_for

    device, norm = get_device(settings.current().device), getattr(training, "gradient_norm", None)
    with work("tracing a step"):
        group, training.group = training.group, Alone()  # the others have ended, and their exchanges are no kernels
        traced = step_graph(options.model, training)
        training.group = group
        if options.vitals and norm is not None:
            rest = graph([u for u in traced.outputs if u is not norm.uop])
            progress.kernels_unwatched = len(plan_for(rest, device.cost_model)[0].calls)
    progress.uops_forward, progress.uops_backward = traced.forward, traced.backward
    if bundle is not None:
        bundle.describe(traced, device)


def _draw(training: Trainable, options: _Options, step: int | None = None) -> Picture | None:
    """The model's picture, written to the file that is asked for, if any; one of a step on the way to a file beside
    it."""
    pixels, path = getattr(training, "picture", None), options.picture
    if pixels is None:
        return None
    if path is not None:
        if step is not None:
            path = path.with_name(f"{path.stem}-{step}{path.suffix}")
        from anneal.training import png

        write_file(path, png(pixels))
    return Picture(path, pixels)


def _advance(
    training: Trainable, progress: Progress, most: int, stop: list[int], reporter: Reporter, meter: Meter | None
) -> None:
    """Do up to `most` steps, as many as fit between two looks, and then read their losses at once.

    Reading a loss waits for the device, which would stand still between steps if every loss were read at once. `meter`
    measures the runs, None where nobody asked for times.
    """
    from anneal.runtime import Launch, metered, observed, values

    pending: list[Any] = []
    begin = time.perf_counter()
    while not pending or (len(pending) < most and not stop and time.perf_counter() - begin < _LOOK_S):
        seen: list[Any] = []
        with nullcontext() if meter is None else metered(meter), observed(seen.append):
            pending.append(training.step())
        if seen:  # a replayed step plans no kernels, and launches those of the step that it captured
            progress.kernels = sum(step.kernels for step in seen)
            plans = [step.plan for step in seen if isinstance(step, Launch)]
            progress.phases = dict(Counter(c.phase for plan in plans for c in plan.calls))
    losses = [float(v) for v in values(pending)]
    if getattr(training, "watched", False):
        progress.vitals = _vitals(training)
    each = (time.perf_counter() - begin) * 1e3 / len(losses)
    for loss in losses:
        progress.times.append(each)
        progress.losses.append(loss)
        if not math.isfinite(loss):
            raise UserError(f"the loss became {loss} at step {progress.count}; try a smaller --lr")
        reporter.tell("step", progress)


def _vitals(training: Any) -> dict[str, float | int | None]:
    """The learning rate, the norm of the last step's gradients, and the bytes of the device that are in use."""
    from anneal.backend import get_device

    norm = training.gradient_norm
    return {
        "lr": float(training.optimizer.param_groups[0]["lr"]),
        "norm": None if norm is None else float(norm.item()),
        "bytes": get_device(settings.current().device).memory().in_use,
    }


class _Kernels:
    """The slowest kernels of a step, as they were timed while training went on."""

    def __init__(self) -> None:
        from anneal.runtime import Meter

        self.meter = Meter(shown=self._show)
        self._labels: dict[Any, list[str]] = {}  # of each plan's launches

    def _show(self, sink: Any, step: Launch) -> None:
        from anneal.inspect import label_of, placed
        from anneal.schedule import origins

        found = step.origins or origins(sink)
        self._labels[step.plan] = [label_of(placed(c.places, found)) or c.kernel.name for c in step.plan.calls]

    def note(self, progress: Progress) -> bool:
        """Note the slowest in the plans that run in each step; False where none was timed."""
        tracks = {plan: t for plan, t in self.meter.tracks.items() if t.counts[0]}
        most = max([t.runs for t in tracks.values()], default=0)
        tracks = {plan: t for plan, t in tracks.items() if 2 * t.runs > most}  # those of each step
        if not tracks:
            return False
        times = {plan: t.times() for plan, t in tracks.items()}
        whole = sum(t.kernels.median for t in times.values() if t.kernels is not None) or 1.0
        found = []
        for plan, track in tracks.items():
            same = defaultdict(list)
            for n, call in enumerate(plan.calls):
                same[call.phase, call.kernel.name].append(n)
            t, labels = times[plan], self._labels[plan]
            part = t.kernels.median / whole if t.kernels is not None else 0.0
            for (phase, _), of in same.items():
                if (each := track.of(of)) is not None:
                    share = part * sum(t.share[n] for n in of)
                    found.append(Slow(phase, labels[of[0]], each.median, share, each.low, each.high))
        largest = max(tracks, key=lambda plan: len(plan.calls))
        progress.slowest = sorted(found, key=lambda s: -s.seconds)[:6]
        progress.measured = times[largest].summary()
        return True
