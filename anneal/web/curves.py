"""The losses of any number of runs on common steps, thinned out so that they can be sent and drawn."""

from __future__ import annotations

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
from anneal.web.uploads import BundleFolder, Runs

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

    def extend(self, steps: Iterable[int], values: list[float]) -> None:
        if all(map(math.isfinite, values)):
            self.steps.extend(steps)
            self.values.extend(values)
            return
        for step, value in zip(steps, values, strict=True):
            if math.isfinite(value):
                self.steps.append(step)
                self.values.append(value)
                continue
            self.lost += 1
            if self.lost_at is None:
                self.lost_at, self.lost_value = step, value

    def thinned(self, grid: Grid, last: int) -> tuple[int, list[float | None]]:
        """The first slot, and the values of the slots from there to the step `last`; None where there is none."""
        if any(map(gt, self.steps, self.steps[1:])):  # a run that began again from an earlier step
            pairs = sorted(zip(self.steps, self.values, strict=True), key=lambda p: p[0])
            self.steps, self.values = array("q", [s for s, _ in pairs]), array("d", [v for _, v in pairs])
        at, count = 0, bisect_right(self.steps, last)
        if not count:
            return 0, []
        first = grid.bucket(self.steps[0])[2]
        out: list[float | None] = [None] * (grid.slot(self.steps[count - 1]) + 2 - first)
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
        found = [source for name in dict.fromkeys(ids) if (source := self._source(name)) is not None]
        last = max([source.last() for source in found], default=0)
        most = min(FINEST, max(FEWEST, SLOTS // max(1, len(found))))
        grid = Grid.of(last, most, log)
        about = [source.about() for source in found]
        differing = _differing([a["settings"] for a in about])
        told = []
        for source, facts in zip(found, about, strict=True):
            at, (loss, validation) = source.curves()
            facts["settings"] = {k: facts["settings"].get(k) for k in differing}
            facts["end"] = [loss.steps[-1], loss.values[-1]] if loss.steps else None
            facts["below"] = sum(v <= 0 for v in loss.values) if min(loss.values, default=1) <= 0 else 0
            facts["lost"] = _lost(loss, str(facts.pop("error") or ""))
            text = json.dumps({**facts, "at": at}, separators=(",", ":"))
            told.append(f'{text[:-1]},"loss":{_told(loss, grid, last)},"validation":{_told(validation, grid, last)}}}')
        missing = sorted({*ids} - {a["id"] for a in about})
        head = {"stride": grid.stride, "head": grid.head, "most": most, "settings": differing, "missing": missing}
        return f'{json.dumps(head)[:-1]},"runs":[{",".join(told)}]}}'.encode()

    def at(self, ids: list[str], step: int) -> dict[str, float]:
        """The finite losses of the step, by run; the slots of many runs have no step by itself."""
        found = {name: source.at(step) for name in dict.fromkeys(ids) if (source := self._source(name)) is not None}
        return {name: loss for name, loss in found.items() if loss is not None and math.isfinite(loss)}

    def _source(self, id: str) -> KeptCurves | Told | None:
        name = id
        if id.startswith("job."):
            job = self.jobs.get(id.removeprefix("job."))
            if job is None or job.kind != "train":
                return None
            if not (job.over and job.run):
                return Told(job, read(self.jobs.place(job) / "events.jsonl", 0, True))
            name = job.run
        place = self.runs.place(name)
        return None if (manifest := place.manifest) is None else KeptCurves(id, place, manifest)


@frozen
class KeptCurves:
    """The curves of a bundle that was kept."""

    id: str
    place: BundleFolder
    manifest: Json

    def last(self) -> int:
        """The last step."""
        line = (self.place.read("loss.csv") or b"").rstrip()[-4096:].rpartition(b"\n")[2]
        step = line.partition(b",")[0]
        return int(step) if step.isdigit() and len(step) < 16 else 0

    def about(self) -> Json:
        m, config = self.manifest, self.place.json("config.json")
        parts = [config.get(k) for k in ("options", "settings")] if isinstance(config, dict) else []
        said = [p for p in parts if isinstance(p, dict)]
        return {
            **{k: m.get(k) for k in ("model", "begun", "status", "error")}, "id": self.id, "live": False,
            "settings": _settings(m, *said),
        }  # fmt: skip

    def at(self, step: int) -> float | None:
        """The loss of a step."""
        text, said = self.place.read("loss.csv") or b"", b"\n%d," % step
        begin = text.find(said)
        rest = text[begin + len(said) :][:40]
        return None if begin < 0 else _number(rest.partition(b",")[0].decode("ascii", "replace"))

    def curves(self) -> tuple[int, tuple[Curve, Curve]]:
        return 0, _of_table(self.place.read("loss.csv") or b"")


@frozen
class Told:
    """The events of a job, as text."""

    job: Job
    text: bytes

    def last(self) -> int:
        tail = self.text[-(1 << 16) :].split(b"\n")
        return max([int(e["step"]) for e in _events_of(tail) if e["event"] == "step"], default=0)

    def about(self) -> Json:
        first = self.text.partition(b"\n")[0]
        start = next((e for e in _events_of([first]) if e["event"] == "start"), {})
        job = self.job
        return {
            "id": f"job.{job.id}", "model": job.model, "begun": job.created, "status": job.state, "error": job.error,
            "live": not job.over, "settings": _settings(start, job.about),
        }  # fmt: skip

    def at(self, step: int) -> float | None:
        """The loss of a step."""
        text = self.text
        begin = text.find(b'"step": %d,' % step)
        line = text[text.rfind(b"\n", 0, begin) + 1 : text.find(b"\n", begin)] if begin >= 0 else b""
        return next((float(e["loss"]) for e in _events_of([line]) if e["event"] == "step" and e["step"] == step), None)

    def curves(self) -> tuple[int, tuple[Curve, Curve]]:
        loss, validation = Curve(), Curve()
        for e in _events_of(self.text.split(b"\n")):
            if e["event"] == "step":
                loss.extend([e["step"]], [e["loss"]])
                if isinstance(e.get("val_loss"), float):
                    validation.extend([e["step"]], [e["val_loss"]])
        return len(self.text), (loss, validation)


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
    return loss, validation


def _columns(block: str, names: list[str]) -> tuple[list[int], list[float], list[str]]:
    """The steps, the losses and the text of val_loss in the lines of a table; lines that are not rows are left out."""
    n = len(names)
    flat = block.replace("\n", ",").split(",")
    try:  # all lines at once, which takes a fifth of the time
        steps, values = list(map(int, flat[0::n])), list(map(float, flat[1::n]))
        if len(flat) % n or not 0 <= min(steps) <= max(steps) < LAST:
            raise ValueError
    except ValueError:
        rows = [line.split(",") for line in block.splitlines()]
        good = [r for r in rows if len(r) == n and r[0].isdecimal() and int(r[0][:17]) < LAST and _is_number(r[1])]
        flat = [cell for row in good for cell in row]
        steps, values = list(map(int, flat[0::n])), list(map(float, flat[1::n]))
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


def _told(curve: Curve, grid: Grid, last: int) -> str:
    first, values = curve.thinned(grid, last)
    return f'{{"first":{first},"values":[{",".join("null" if v is None else f"{v:.6g}" for v in values)}]}}'
