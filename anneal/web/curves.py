"""The losses of any number of runs on common steps, thinned out so that they can be sent and drawn."""

from __future__ import annotations

import functools
import json
import math
import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from operator import gt

from anneal.frozen import Json, frozen
from anneal.web.jobs import Job, Jobs, read
from anneal.web.uploads import Runs

MOST_RUNS = 500
SLOTS = 240_000  # of an answer, about 4 bytes each when packed
FEWEST, FINEST = 1024, 16_384  # slots of a run
LAST = 1 << 52  # above every step: the page's numbers are floats
BLOCK = 1 << 20  # bytes of losses that are read at a time
# Options that say where a run writes and what it prints, not how it trains.
ASIDE = frozenset(
    {
        "model", "log_every", "plain", "save", "picture", "checkpoint", "checkpoint_every", "as_json", "bundle",
        "vitals", "samples", "start", "download", "debug", "cache_dir",
    }
)  # fmt: skip
FACTS = ("steps", "batch", "lr", "seed", "device", "adapter", "anneal")
_BECAME = re.compile(r"the loss became (\S+) at step (\d+)")


@frozen
class Grid:
    """The places of steps. `stride`: steps a slot, a power of two. With `head`, a power of two of at least 4, the steps
    below it have a slot each and every doubling of the step `head / 2` slots, as a logarithmic axis needs it.
    """

    stride: int = 1
    head: int = 0

    @classmethod
    def of(cls, last: int, most: int, log: bool) -> Grid:
        """The finest grid whose slots for the steps up to `last` are at most `most`."""
        if log:
            head = 1 << max(2, (last + 1).bit_length())
            while head > 4 and cls(head=head).slot(last) >= most:
                head //= 2
            return cls(head=head)
        stride = 1
        while last // stride >= most:
            stride *= 2
        return cls(stride)

    def slot(self, step: int) -> int:
        if not self.head:
            return step // self.stride
        if step < self.head:
            return step
        k = step.bit_length() - self.head.bit_length()
        return self.head + k * (self.head // 2) + (step - (self.head << k) >> k + 1)

    def bucket(self, step: int) -> tuple[int, int, int]:
        """The first step of the steps that share their two slots with `step`, the one after them, their first slot.

        A step with a slot of its own shares it with none.
        """
        stride = self.stride
        if self.head:
            stride = 1 if step < self.head else 2 << step.bit_length() - self.head.bit_length()
        if stride == 1:
            return step, step + 1, self.slot(step)
        begin = step // (2 * stride) * 2 * stride
        return begin, begin + 2 * stride, self.slot(begin)


@dataclass(slots=True)
class Curve:
    """Steps, in order, and their finite values; the steps without one are counted, and the first of them is kept.

    A curve stands in slots. Slot i is step i as long as all steps fit (`Grid`); else two neighbouring slots stand for
    `2 * stride` steps and have the least and the greatest loss of them, in the order in which they came, so that no
    peak is lost. `app/src/curves.ts` adds the steps of a live run to the same slots.
    """

    steps: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))
    lost: int = 0
    lost_at: int | None = None
    lost_value: float = math.nan

    def extend(self, steps: Iterable[int], values: Iterable[float]) -> None:
        for step, value in zip(steps, values, strict=True):
            if math.isfinite(value):
                self.steps.append(step)
                self.values.append(value)
                continue
            self.lost += 1
            if self.lost_at is None:
                self.lost_at, self.lost_value = step, value

    def in_order(self) -> Curve:
        """The same up to the last step, in the order of the steps: a run may have begun again from an earlier one."""
        if any(map(gt, self.steps, self.steps[1:])):
            rows = [p for p in zip(self.steps, self.values, strict=True) if p[0] <= self.steps[-1]]
            pairs = sorted(rows, key=lambda p: p[0])
            self.steps, self.values = array("q", [s for s, _ in pairs]), array("d", [v for _, v in pairs])
        return self

    def at(self, step: int) -> float | None:
        """The value of a step, the last one of several."""
        n = bisect_right(self.steps, step) - 1
        return self.values[n] if n >= 0 and self.steps[n] == step else None

    def thinned(self, grid: Grid) -> tuple[int, list[float | None]]:
        """The first slot, and the values of the slots from there on; None where there is none."""
        at, count = 0, len(self.steps)
        if not count:
            return 0, []
        first = grid.bucket(self.steps[0])[2]
        out: list[float | None] = [None] * (grid.slot(self.steps[-1]) + 2 - first)
        while at < count:
            begin, end, slot = grid.bucket(self.steps[at])
            upto = bisect_left(self.steps, end, at, count)
            slot -= first
            if end - begin == 1:
                out[slot] = self.values[upto - 1]
            elif upto - at == 1:
                out[slot + (self.steps[at] - begin >= (end - begin) // 2)] = self.values[at]
            else:
                values = self.values[at:upto]
                least, greatest = min(values), max(values)
                rising = values.index(least) < values.index(greatest)
                out[slot], out[slot + 1] = (least, greatest) if rising else (greatest, least)
            at = upto
        while out and out[-1] is None:
            out.pop()
        return first, out


@frozen
class RunLosses:
    """The losses of one run: `facts` are for the page, `at` is the byte of its events where that goes on."""

    facts: Json
    loss: Curve
    validation: Curve
    at: int = 0


@frozen
class Curves:
    """The losses of kept runs, and of jobs ("job.ID") that train or trained."""

    runs: Runs
    jobs: Jobs

    def of(self, ids: list[str], log: bool) -> bytes:
        """The answer's JSON: how slots are steps (`stride`, `head`), and the runs that there are.

        A run: id, model, begun, status, live, at (the byte of its events where the page goes on), end (the last step
        and its loss), below (losses that are not above 0), lost (how many were no finite number, the first one's step
        and value), the settings that differ among the runs, and the curves `loss` and `validation`.
        """
        found = self.found(ids)
        most = min(FINEST, max(FEWEST, SLOTS // max(1, len(found))))
        grid = Grid.of(max([r.loss.steps[-1] for r in found.values() if r.loss.steps], default=0), most, log)
        differing = _differing([r.facts["settings"] for r in found.values()])
        told = []
        for r in found.values():
            facts, loss = r.facts, r.loss
            facts["settings"] = {k: facts["settings"].get(k) for k in differing}
            facts["end"] = [loss.steps[-1], loss.values[-1]] if loss.steps else None
            facts["below"] = sum(v <= 0 for v in loss.values) if min(loss.values, default=1) <= 0 else 0
            facts["lost"] = _lost(loss, str(facts.pop("error") or ""))
            text = json.dumps({**facts, "at": r.at}, separators=(",", ":"))
            told.append(f'{text[:-1]},"loss":{_told(loss, grid)},"validation":{_told(r.validation, grid)}}}')
        missing = sorted({*ids} - {r.facts["id"] for r in found.values()})
        head = {"stride": grid.stride, "head": grid.head, "most": most, "settings": differing, "missing": missing}
        return f'{json.dumps(head)[:-1]},"runs":[{",".join(told)}]}}'.encode()

    def at(self, ids: list[str], step: int) -> dict[str, float]:
        """The finite losses of the step, by run; the slots of many runs have no step by itself."""
        found = {name: r.loss.at(step) for name, r in self.found(ids).items()}
        return {name: loss for name, loss in found.items() if loss is not None}

    def found(self, ids: list[str]) -> dict[str, RunLosses]:
        """The losses of the runs that there are."""
        found = {name: self._one(name) for name in dict.fromkeys(ids)}
        return {name: r for name, r in found.items() if r is not None}

    def _one(self, id: str) -> RunLosses | None:
        name = id
        if id.startswith("job."):
            job = self.jobs.get(id.removeprefix("job."))
            if job is None or job.kind != "train":
                return None
            if not (job.over and job.run):
                return _of_job(job, read(self.jobs.place(job) / "events.jsonl", 0, True))
            name = job.run
        place = self.runs.place(name)
        if (m := place.manifest) is None:
            return None
        config = place.json("config.json")
        parts = [config.get(k) for k in ("options", "settings")] if isinstance(config, dict) else []
        facts = {
            **{k: m.get(k) for k in ("model", "begun", "status", "error")}, "id": id, "live": False,
            "settings": _settings(m, *[p for p in parts if isinstance(p, dict)]),
        }  # fmt: skip
        return RunLosses(facts, *_of_table(place.read("loss.csv") or b""))


def _of_job(job: Job, text: bytes) -> RunLosses:
    """The losses of a job by the events that it has told of."""
    loss, validation, start = Curve(), Curve(), {}
    for e in _events_of(text.split(b"\n")):
        if e["event"] == "start":
            start = e
        elif e["event"] == "step":
            loss.extend([e["step"]], [e["loss"]])
            if isinstance(e.get("val_loss"), float):
                validation.extend([e["step"]], [e["val_loss"]])
    facts = {
        "id": f"job.{job.id}", "model": job.model, "begun": job.created, "status": job.state, "error": job.error,
        "live": not job.over, "settings": _settings(start, job.about),
    }  # fmt: skip
    return RunLosses(facts, loss.in_order(), validation.in_order(), len(text))


def _events_of(lines: Iterable[bytes]) -> Iterator[Json]:
    """The events among lines of JSON; events of steps only if their step and loss are numbers."""
    for line in lines:
        try:
            e = json.loads(line)
        except ValueError:
            continue
        if not isinstance(e, dict) or not isinstance(e.get("event"), str):
            continue
        step = e.get("step")
        known = type(step) is int and 0 <= step < LAST and isinstance(e.get("loss"), (int, float))
        if known or e["event"] != "step":
            yield e


@functools.lru_cache(maxsize=64)  # the pointer rests at many steps of the same runs
def _of_table(text: bytes) -> tuple[Curve, Curve]:
    """The losses of a loss.csv, and those of its column val_loss, if it has one."""
    loss, validation = Curve(), Curve()
    head, _, rest = text.partition(b"\n")
    names = [n.strip() for n in head.decode("utf-8", "replace").split(",")]
    if names[:2] != ["step", "loss"]:
        return loss, validation
    at = 0
    while at < len(rest):
        end = rest.find(b"\n", at + BLOCK) + 1 or len(rest)
        block, at = rest[at:end].decode("utf-8", "replace").strip(), end
        steps, values, others = _columns(block, names)
        loss.extend(steps, values)
        said = [(s, v) for s, v in zip(steps, others) if v.strip()]
        validation.extend([s for s, _ in said], [_number(v) for _, v in said])
    return loss.in_order(), validation.in_order()


def _columns(block: str, names: list[str]) -> tuple[list[int], list[float], list[str]]:
    """The steps, the losses and the text of val_loss in the lines of a table; lines that are not rows are left out."""
    n = len(names)

    def numbers() -> tuple[list[int], list[float]]:
        return list(map(int, flat[0::n])), list(map(float, flat[1::n]))

    flat = block.replace("\n", ",").split(",")
    try:  # all lines at once, which takes a fifth of the time
        steps, values = numbers()
        if len(flat) % n or not 0 <= min(steps) <= max(steps) < LAST:
            raise ValueError
    except ValueError:
        rows = [line.split(",") for line in block.splitlines()]
        good = [r for r in rows if len(r) == n and r[0].isdecimal() and int(r[0][:17]) < LAST and _is_number(r[1])]
        flat = [cell for row in good for cell in row]
        steps, values = numbers()
    return steps, values, flat[names.index("val_loss") :: n] if "val_loss" in names else []


def _is_number(text: str) -> bool:
    return math.isfinite(_number(text)) or text.strip().lower() in ("nan", "inf", "-inf")


def _number(text: str) -> float:
    """The number; nan for a text that is not a number."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _settings(*said: Json) -> Json:
    """The settings of a run's training, by name; the first value of each counts."""
    first, *rest = said
    found = {k: first[k] for k in FACTS if first.get(k) is not None}
    for more in rest:
        found |= {k: v for k, v in more.items() if k not in found and k not in ASIDE and v is not None}
    return found


def _differing(settings: list[Json]) -> list[str]:
    """The names of the settings that differ between two runs; a run may lack a setting."""
    values: dict[str, set[str]] = {}
    for each in settings:
        for name, value in each.items():
            values.setdefault(name, set()).add(json.dumps(value, default=str))
    return [name for name, found in values.items() if len(found) > 1]


def _lost(loss: Curve, error: str) -> Json | None:
    """The first step whose loss was not finite, that loss, and the number of such steps."""
    if loss.lost_at is not None:
        return {"step": loss.lost_at, "value": str(loss.lost_value), "count": loss.lost}
    said = _BECAME.search(error)
    return {"step": int(said[2]), "value": said[1], "count": 1} if said else None


def _told(curve: Curve, grid: Grid) -> str:
    first, values = curve.thinned(grid)
    return f'{{"first":{first},"values":[{",".join("null" if v is None else f"{v:.6g}" for v in values)}]}}'
