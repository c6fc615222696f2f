"""Runs random tensor programs three ways and reports the first difference.

    python -m tests.fuzz.programs --count 2000 --seed 1 --devices cpu,webgpu --jobs 2

The expected value is the unscheduled interpreter's on the graph as the Tensor API wrote it, built with the
creation-time folds switched off, in float64; integers, bools, floats of 8 and 16 bits, and shapes must agree exactly. A
float may differ by rounding: by `SLACK[device]` of the output's magnitude, or by `AMPLIFY[device]` times what float32
itself loses on that program (the interpreter in float32 against the interpreter in float64), whichever is more. Where
the interpreter's value is not finite, nothing is asked of a device.

Sums of integers of which nothing is known are int32 on the cpu, which raises RangeError where one does not fit, and
int64 on webgpu. So the interpreter runs the graph as it is written for the device, and finds the sums that do not fit:
a program with one may raise RangeError (a part that no output reads need not be computed), one without may not.

Programs are realized `--batch` at a time: their kernels are then planned, compiled and submitted together, and the
memory planner has many lifetimes to juggle. A batch that raises is taken apart, so the report names one program.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from tests.fuzz.generate import Program, program

SLACK = {"cpu": 2e-5, "webgpu": 2e-4}
AMPLIFY = {"cpu": 32.0, "webgpu": 512.0}
VARIABLES = "VARIABLES"  # in the place of an opt to force: programs with Variables for sizes
Arrays = dict[str, np.ndarray[Any, Any]]


class Known(NamedTuple):
    """What the interpreter says in float64 and in float32, and of sums that may not fit int32: whether the cpu looks at
    any, and whether one does not fit."""

    wide: Arrays
    narrow: Arrays
    looks: bool
    lost: bool


Oracle = Callable[[Program, str], Known]


@dataclass
class Failure:
    """A program, the device it fails on, and what was seen."""

    program: Program
    device: str
    message: str

    def __str__(self) -> str:
        return f"program {self.program.seed} on {self.device}: {self.message}\n{self.program.script(self.device)}"


def build(p: Program, device: str) -> dict[str, Any]:
    """Run the program's lines: the outputs as lazy tensors.

    A gradient that does not exist stands for zeros: algebra at creation may find that a value does not depend on a leaf
    (`where(p, where(p, a, x), b)` never reads x), and then no gradient flows there.
    """
    from anneal.errors import GradientError
    from anneal.tensor import Tensor, Variable, functional, set_default_device

    set_default_device(device)
    try:
        scope: dict[str, Any] = {"np": np, "Tensor": Tensor, "F": functional, "Variable": Variable}
        before, backward, after = p.source().partition(p.backward or "\0")
        exec(compile(before, f"<program {p.seed}>", "exec"), scope)
        with contextlib.suppress(GradientError):
            exec(compile(backward, f"<backward of program {p.seed}>", "exec"), scope)
        exec(compile(after, f"<end of program {p.seed}>", "exec"), scope)
        for name, _, shape, _ in p.leaves:
            for line in p.lines:
                grad, _, what = line.partition(" = ")
                if what == f"{name}.grad" and scope[grad] is None:
                    scope[grad] = Tensor.zeros(*shape)
        return {n: scope[n] for n in p.outputs}
    finally:
        set_default_device(None)


@contextlib.contextmanager
def unfolded() -> Iterator[None]:
    """Graphs as they were written: no creation-time algebra, in an arena of their own."""
    from anneal.uop import Arena, node

    plain = {op: (None, *facts[1:]) for op, facts in node._ALU_FACTS.items()}
    with mock.patch.dict(node._ALU_FACTS, plain), Arena():
        yield


def expected(p: Program, device: str = "cpu") -> Known:
    """What the interpreter says of the graph that is written for `device`."""
    from anneal.uop import FITS, Op, toposort
    from tests.reference import evaluate

    with unfolded():
        outputs = build(p, device)
        graphs = [t.uop for t in outputs.values()]
        looks = [u for u in toposort(graphs) if u.op is Op.CAST and isinstance(u.tag, tuple) and u.tag[0] == FITS]
        wide, narrow = evaluate(graphs, dtype_override=np.float64), evaluate(graphs)
        values = evaluate([u.src[0] for u in looks])
    lost = any((v != v.astype(u.dtype.name)).any() for u, v in zip(looks, values))
    return Known(dict(zip(outputs, wide)), dict(zip(outputs, narrow)), bool(looks), lost)


def actual(programs: Sequence[Program], device: str) -> list[Arrays]:
    """What `device` computes, all programs realized together."""
    from anneal.tensor import realize

    built = [build(p, device) for p in programs]
    realize([t for outputs in built for t in outputs.values()])
    return [{n: t.numpy() for n, t in outputs.items()} for outputs in built]


def difference(device: str, wide: Arrays, narrow: Arrays, got: Arrays) -> str | None:
    """The first output that differs, in words; None if all agree."""
    for name, w in wide.items():
        n, g = narrow[name], got[name]
        if g.shape != w.shape or g.dtype != n.dtype:
            return f"{name} is {g.dtype}{list(g.shape)}, not {n.dtype}{list(n.shape)}"
        if n.dtype.kind != "f" or n.dtype.itemsize < 4:
            wrong = g != n
        else:
            usable = np.isfinite(w) & np.isfinite(n) & (np.abs(w) < 1e30)
            w = np.where(usable, w, 0.0)
            scale = max(1.0, float(np.abs(w).max(initial=0.0)))
            lost = float(np.abs(np.where(usable, n, 0.0) - w).max(initial=0.0))
            limit = max(SLACK[device] * scale, AMPLIFY[device] * lost)
            # written so that a nan of the device counts as wrong
            wrong = usable & ~(np.abs(np.where(usable, g, 0.0) - w) <= limit)
        if wrong.any():
            at = tuple(int(i) for i in np.argwhere(wrong)[0])
            return f"{name}{list(at)} is {g[at]!r}, expected {n[at]!r} ({int(wrong.sum())} of {wrong.size} wrong)"
    return None


def with_variables(programs: Sequence[Program]) -> list[tuple[Program, Program]]:
    """Programs, each beside itself with Variables for sizes, of which all can be built, and together."""
    from anneal.errors import ShapeError
    from tests.fuzz.sizes import symbolic

    out = []
    for p in programs:
        q = symbolic(p)
        if q is not None:
            with contextlib.suppress(ShapeError, TypeError):
                ours, theirs = build(q, "cpu"), build(p, "cpu")
                # a symbolic size that happens to be 1 is not squeezed
                if all(t.ndim == theirs[name].ndim for name, t in ours.items()):
                    out.append((p, q))
    return out


def check_variables(programs: Sequence[Program], devices: Sequence[str]) -> list[Failure]:
    """Compare programs with Variables for sizes with the same programs with numbers."""
    failures: list[Failure] = []
    for p, q in with_variables(programs):
        for device in devices:
            message = compared(device, expected(p, device), _alone(q, device))
            if message is not None:
                failures.append(Failure(q, device, message))
    return failures


def check(programs: Sequence[Program], devices: Sequence[str], oracle: Oracle = expected) -> list[Failure]:
    """Compare a batch of programs on every device with what `oracle` says of each."""
    failures: list[Failure] = []
    for device in devices:
        known: list[Known] = []
        sound: list[Program] = []
        for p in programs:
            try:
                known.append(oracle(p, device))
                sound.append(p)
            except Exception:
                failures.append(Failure(p, "interpreter", traceback.format_exc(limit=-4)))
        together = [p for p, k in zip(sound, known) if not k.lost]  # the others may raise
        results: dict[int, Arrays | str] = {}
        try:
            results = {p.seed: r for p, r in zip(together, actual(together, device))}
        except Exception:
            results = {p.seed: _alone(p, device) for p in together}
            if together and not any(isinstance(r, str) for r in results.values()):
                failures.append(
                    Failure(together[0], device, f"fails in a batch only: {traceback.format_exc(limit=-4)}")
                )
        for p, k in zip(sound, known):
            message = compared(device, k, results[p.seed] if p.seed in results else _alone(p, device))
            if message is not None:
                failures.append(Failure(p, device, message))
    return failures


def compared(device: str, known: Known, got: Arrays | str) -> str | None:
    """What is wrong with the outputs of a program, or with what it raised, in words; None if nothing is."""
    if not isinstance(got, str):
        return difference(device, known.wide, known.narrow, got)
    return None if known.lost and got.splitlines()[-1].startswith("anneal.errors.RangeError") else got


def _alone(p: Program, device: str) -> Arrays | str:
    try:
        return actual([p], device)[0]
    except Exception:
        return traceback.format_exc(limit=-4)


def shrink(failure: Failure, seconds: float = 20.0) -> Failure:
    """The same kind of failure from a smaller program: fewer outputs, then variables replaced by their values."""
    end = time.monotonic() + seconds
    best = failure
    if failure.device not in SLACK:
        return best

    def attempt(p: Program) -> bool:
        nonlocal best
        if time.monotonic() > end:
            return False
        found = [f for f in check([p], [failure.device]) if f.device == failure.device]
        if found:
            best = found[0]
        return bool(found)

    for name in failure.program.outputs:
        if attempt(replace(failure.program, outputs=[name])):
            break
    else:
        for name in failure.program.outputs:
            attempt(replace(best.program, outputs=[n for n in best.program.outputs if n != name]))
    progress = True
    while progress and time.monotonic() < end:
        progress = False
        # the last lines that only feed something unused go first, then lines become leaves, the latest first
        for i in reversed(range(len(best.program.lines))):
            for candidate in (
                _without(best.program, i),
                _as_leaf(best.program, i, best.device),
                *_fewer_terms(best.program, i),
            ):
                if candidate is not None and attempt(candidate):
                    progress = True
                    break
            if progress:
                break
    leaves = best.program.leaves
    text = "\n".join(best.program.lines + best.program.outputs)
    kept = [leaf for leaf in leaves if any(n == leaf[0] for n in _names(text))]
    return replace(best, program=replace(best.program, leaves=kept))


def _names(text: str) -> list[str]:
    from tests.fuzz.generate import _NAME

    return _NAME.findall(text)


def _without(p: Program, i: int) -> Program | None:
    name = p.lines[i].partition(" = ")[0]
    rest = p.lines[:i] + p.lines[i + 1 :]
    if name in p.outputs or any(name in _names(line) for line in rest):
        return None
    return replace(p, lines=rest)


def _fewer_terms(p: Program, i: int) -> list[Program]:
    """The program with one term less in its loss, each in turn."""
    terms = p.lines[i].removesuffix(".backward()")[1:-1].split(" + ") if p.lines[i].endswith(".backward()") else []
    lost = [f"({' + '.join(terms[:k] + terms[k + 1 :])}).backward()" for k in range(len(terms)) if len(terms) > 1]
    return [replace(p, lines=[*p.lines[:i], line, *p.lines[i + 1 :]]) for line in lost]


def _as_leaf(p: Program, i: int, device: str) -> Program | None:
    """The program with line `i` replaced by what the interpreter says it computes."""
    name, _, expression = p.lines[i].partition(" = ")
    if name in p.outputs or not expression or expression.endswith(".grad") or "assign" in expression:
        return None
    try:
        value = expected(replace(p, lines=p.lines[: i + 1], outputs=[name]), device).narrow[name]
    except Exception:
        return None
    dtype = "bool_" if value.dtype.name == "bool" else value.dtype.name
    leaf = (name, dtype, value.shape, value.reshape(-1).tolist())
    return replace(p, leaves=[*p.leaves, leaf], lines=p.lines[:i] + p.lines[i + 1 :])


def run(seeds: range, devices: Sequence[str], batch: int, oracle: Oracle = expected) -> list[Failure]:
    """Check the programs of `seeds`, `batch` at a time, in this process."""
    failures = []
    for start in range(seeds.start, seeds.stop, batch):
        programs = [program(s) for s in range(start, min(start + batch, seeds.stop))]
        failures += check(programs, devices, oracle)
    return failures


def run_variables(seeds: range, devices: Sequence[str], batch: int) -> list[Failure]:
    """The same with Variables for sizes, where a program can have them."""
    return check_variables([program(s) for s in seeds], devices)


def run_forced(seeds: range, devices: Sequence[str], batch: int, kind: str = "") -> list[Failure]:
    """The same; with `kind`, kernels of webgpu get an opt of that kind (tests/fuzz/force.py)."""
    if kind == VARIABLES:
        return run_variables(seeds, devices, batch)
    if not kind:
        return run(seeds, devices, batch)
    from tests.fuzz.force import forced

    with forced(kind):
        return run(seeds, devices, batch)


def run_parallel(
    seeds: range, devices: Sequence[str], batch: int, jobs: int, verbose: bool = False, kind: str = ""
) -> list[Failure]:
    """The same over `jobs` processes."""
    if jobs == 1:
        return run_forced(seeds, devices, batch, kind)
    step = max(batch, batch * (len(seeds) // (batch * jobs * 4)))
    parts = [range(s, min(s + step, seeds.stop)) for s in range(seeds.start, seeds.stop, step)]
    failures: list[Failure] = []
    with ProcessPoolExecutor(jobs, initializer=_single_threaded) as pool:
        for n, found in enumerate(
            pool.map(run_forced, parts, [devices] * len(parts), [batch] * len(parts), [kind] * len(parts))
        ):
            failures += found
            if verbose:
                print(f"{parts[n].stop - seeds.start} of {len(seeds)}: {len(failures)} failures", file=sys.stderr)
    return failures


def _single_threaded() -> None:
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.programs", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="of the first program; the next has the next seed")
    parser.add_argument("--devices", default="cpu", help="a list of cpu, webgpu (default cpu)")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--batch", type=int, default=16, help="programs realized together (default 16)")
    parser.add_argument("--show", type=int, default=3, help="failures printed in full (default 3)")
    parser.add_argument(
        "--force", default="", metavar="OPT", help="an opt that every kernel on webgpu gets if it takes it"
    )
    parser.add_argument("--variables", action="store_true", help="programs with Variables for sizes, beside numbers")
    args = parser.parse_args()
    if args.variables:
        args.force = VARIABLES
    devices = [d for d in args.devices.split(",") if d]
    if unknown := [d for d in devices if d not in SLACK]:
        parser.error(f"unknown device {unknown[0]!r}; known: {', '.join(SLACK)}")
    if "webgpu" in devices:
        os.environ.setdefault("ANNEAL_REQUIRE_WEBGPU", "1")
    start = time.monotonic()
    seeds = range(args.seed, args.seed + args.count)
    if args.force:
        os.environ["ANNEAL_CACHE"] = "0"
    failures = run_parallel(seeds, devices, args.batch, args.jobs, verbose=True, kind=args.force)
    for f in failures[: args.show]:
        print(f if args.variables else shrink(f), end="\n\n")
    for f in failures[args.show :]:
        print(f"program {f.program.seed} on {f.device}: {f.message.strip().splitlines()[-1]}")
    print(f"{args.count} programs on {', '.join(devices)}: {len(failures)} differ, {time.monotonic() - start:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
