"""The curves of many runs: no peak is lost, slots are the page's, settings that differ, and what is no number."""

from __future__ import annotations

import dataclasses
import json
import math
import random
import shutil
import subprocess
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from anneal.web import curves
from anneal.web.curves import Curve, Grid
from anneal.web.jobs import Job
from tests.web.helpers import Client

APP = Path(__file__).resolve().parents[2] / "anneal/web/app"
IMPORT = """
import { build } from "esbuild";
import { readFileSync } from "node:fs";
const made = await build({ entryPoints: ["src/curves.ts"], format: "esm", write: false, logLevel: "error" });
const curves = await import("data:text/javascript," + encodeURIComponent(made.outputFiles[0].text));
const told = JSON.parse(readFileSync(0, "utf8"));
"""


def by_the_page(script: str, told: object) -> Any:
    """What a script prints that has the page's `curves` and what it is `told`."""
    node = shutil.which("node")
    if node is None or not (APP / "node_modules" / "esbuild").is_dir():
        pytest.skip("needs node and `npm ci` in anneal/web/app, as .ci/run does")
    command = [node, "--input-type=module", "-e", IMPORT + script]
    done = subprocess.run(command, cwd=APP, input=json.dumps(told), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def bundle(client: Client, name: str, losses: Sequence[object], *, csv: str = "", **manifest: object) -> str:
    """Keep a run whose steps, from 1 on, had these losses."""
    place = client.studio.where / "runs" / name  # type: ignore[attr-defined]
    place.mkdir(parents=True)
    rows = csv or "step,loss,ms\n" + "".join(f"{i},{loss},1.0\n" for i, loss in enumerate(losses, 1))
    (place / "loss.csv").write_text(rows)
    (place / "manifest.json").write_text(json.dumps({"model": "mlp", "status": "done", "begun": "2026", **manifest}))
    return name


def told(client: Client, *runs: str, x: str = "") -> dict[str, Any]:
    answer = client.get("/api/curves", params={"runs": " ".join(runs), "x": x})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = json.loads(answer.text, parse_constant=pytest.fail)
    return found


JOB = "20260314T150926-train-a1b2c3"


def job(client: Client, events: list[dict[str, object]], rest: str = "") -> int:
    """A job that failed and told of these events; the number of their bytes."""
    place = client.studio.where / "runs" / ".studio" / "jobs" / JOB  # type: ignore[attr-defined]
    place.mkdir(parents=True)
    (place / "job.json").write_text(json.dumps(dataclasses.asdict(Job(JOB, "train", "mlp", "cpu", [], {}, "failed"))))
    whole = "".join(json.dumps(e) + "\n" for e in events)
    (place / "events.jsonl").write_text(whole + rest)
    client.studio.jobs.read()  # type: ignore[attr-defined]
    return len(whole)


GRIDS = [Grid(), Grid(stride=2), Grid(stride=8), Grid(head=4), Grid(head=16)]


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_no_peak_is_lost_and_the_page_adds_steps_to_the_same_slots(grid: Grid) -> None:
    r = random.Random(5)
    steps = sorted(r.sample(range(1, 700), 500))
    curve = Curve(array("q", steps), array("d", [r.choice([r.random(), 0.5, 9 * r.random()]) for _ in steps]))
    first, values = curve.thinned(grid)
    spread: dict[int, list[float]] = {}
    for step, value in zip(steps, curve.values, strict=True):
        begin, end, slot = grid.bucket(step)
        assert begin <= step < end
        assert slot == grid.slot(begin)
        spread.setdefault(slot, []).append(value)
    for slot, those in spread.items():
        kept = [v for v in values[slot - first : slot - first + 2] if v is not None][: min(2, len(those))]
        assert sorted(kept) == sorted({min(those), max(those)} if len({*those}) > 1 else those[:2])
    script = """
    const { grid, steps, values } = told, c = { first: 0, values: [] };
    steps.forEach((s, i) => curves.add(c, grid, s, values[i]));
    const slots = steps.map((s) => curves.slotOf(grid, s));
    console.log(JSON.stringify([c.first, c.values, slots, slots.map((s) => curves.stepOf(grid, s))]));
    """
    question = {"grid": dataclasses.asdict(grid), "steps": steps, "values": [*curve.values]}
    page_first, page_values, slots, begins = by_the_page(script, question)
    assert (page_first, page_values) == (first, values)
    assert slots == [grid.slot(s) for s in steps]
    assert [grid.slot(b) for b in begins] == slots
    assert all(b <= s for b, s in zip(begins, steps, strict=True))


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("last", [1, 100, 10_000, 10**9])
def test_a_grid_has_so_many_slots_at_most_and_not_far_fewer(last: int, log: bool) -> None:
    grid = Grid.of(last, 1024, log)
    assert min(last, 300) <= grid.slot(last) < 1024


def test_an_answer_does_not_grow_with_the_steps(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curves, "SLOTS", 3000)
    monkeypatch.setattr(curves, "FEWEST", 100)
    names = [bundle(client, f"r{n}", range(1, 3001)) for n in range(20)]
    for x in ("", "log"):
        answer = told(client, *names, x=x)
        assert [r["id"] for r in answer["runs"]] == names
        lengths = {len(r["loss"]["values"]) for r in answer["runs"]}
        assert len(lengths) == 1
        assert 50 <= min(lengths) <= 150
        for r in answer["runs"]:
            assert {1, 3000} <= {*r["loss"]["values"]}


def test_the_losses_of_one_step_are_those_of_the_file(client: Client) -> None:
    a, b = bundle(client, "a", [1.0, 0.123456789, 3.0]), bundle(client, "b", [1.0])
    job(client, [{"event": "step", "step": n, "loss": n / 4, "ms": 1} for n in (1, 2, 12)])
    asked = {"runs": f"{a} {b} job.{JOB} gone"}
    for step, losses in ((2, {a: 0.123456789, f"job.{JOB}": 0.5}), (12, {f"job.{JOB}": 3.0}), (0, {})):
        assert client.get("/api/curves", params={**asked, "step": str(step)}).json() == {"losses": losses}


def test_only_settings_that_differ_are_told(client: Client) -> None:
    a = bundle(client, "a", [1.0], lr=0.1, batch=8, seed=1, anneal="0.1")
    b = bundle(client, "b", [1.0], lr=0.2, batch=8, seed=1)
    config = {"options": {"lr": None, "scratch": True, "save": "x"}, "settings": {"fuse": True}}
    (client.studio.where / "runs" / "b" / "config.json").write_text(json.dumps(config))  # type: ignore[attr-defined]
    answer = told(client, a, b)
    assert answer["settings"] == ["lr"]  # what only one of them says is no difference
    assert [r["settings"] for r in answer["runs"]] == [{"lr": 0.1}, {"lr": 0.2}]
    assert told(client, a)["settings"] == []


def test_runs_that_diverged_keep_what_was_finite(client: Client) -> None:
    nan = bundle(client, "nan", [2.0, 1.0, "nan", "inf", 3.0])
    error = bundle(client, "error", [2.0], error="UserError: the loss became inf at step 2; try a smaller --lr")
    minus = bundle(client, "minus", [1.0, 0.0, -1.0])
    x, y, z = told(client, nan, error, minus)["runs"]
    assert x["loss"] == {"first": 1, "values": [2, 1, None, None, 3]}
    assert x["lost"] == {"step": 3, "value": "nan", "count": 2}
    assert (y["lost"], y["loss"]["values"]) == ({"step": 2, "value": "inf", "count": 1}, [2])
    assert (z["lost"], z["below"]) == (None, 2)


@pytest.mark.parametrize(
    ("csv", "loss"),
    [
        ("", []),
        ("step,loss,ms\n", []),
        ("a,b\n1,2\n", []),
        ("step,loss,ms\n1,2.0,3\n2,1.0", [2]),
        ("step,loss,ms\r\n1,2.0,3\r\n2,x,3\r\n3,1.0,3\r\n", [2, None, 1]),
        ("step,loss,ms\n3,1.0,3\n1,2.0,3\n3,1.0,3\n", [2, None, 1]),
        ("step,loss,ms\n-5,2.0,3\n99999999999999999999,2.0,3\n1,4.0,3\n", [4]),
        ("step,loss,ms\n4000000000000000,2.0,3\n1,4.0,3\n", [4]),
    ],
    ids=range(8),
)
def test_tables_that_are_none_are_read_as_far_as_they_are(client: Client, csv: str, loss: list[float | None]) -> None:
    name = bundle(client, "odd", [], csv=csv)
    assert told(client, name)["runs"][0]["loss"]["values"] == loss


def test_losses_on_validation_data_have_a_curve(client: Client) -> None:
    name = bundle(client, "v", [], csv="step,loss,ms,val_loss\n1,2,3,\n2,1,3,1.5\n3,1,3,\n4,1,3,nan\n5,1,3,1.25\n")
    (run,) = told(client, name)["runs"]
    assert run["validation"] == {"first": 2, "values": [1.5, None, None, 1.25]}
    assert run["loss"]["values"] == [2, 1, 1, 1, 1]


def test_a_job_takes_part_with_what_it_has_told(client: Client) -> None:
    events = [{"event": "start", "lr": 0.5}, *[{"event": "step", "step": n, "loss": 1 / n} for n in (1, 2, 4)]]
    size = job(client, [*events, {"event": "step", "step": "x"}], '{"event": "step", "st')
    kept = bundle(client, "kept", [1.0], lr=0.25)
    answer = told(client, f"job.{JOB}", kept)
    run = answer["runs"][0]
    assert (run["loss"], run["at"]) == ({"first": 1, "values": [1, 0.5, None, 0.25]}, size)
    assert (answer["settings"], run["settings"], run["live"]) == (["lr"], {"lr": 0.5}, False)
    client.studio.jobs.get(JOB).run = kept  # type: ignore[attr-defined]
    (run,) = told(client, f"job.{JOB}")["runs"]
    assert (run["id"], run["loss"]["values"]) == (f"job.{JOB}", [1])


def test_what_is_no_run_is_told(client: Client) -> None:
    kept = bundle(client, "kept", [1.0])
    answer = told(client, kept, f"job.{JOB}", "../kept", kept)
    assert ([r["id"] for r in answer["runs"]], len(answer["missing"])) == (["kept"], 2)
    for ids in ("", " ".join(map(str, range(501)))):
        assert client.get("/api/curves", params={"runs": ids}).status_code == 400


def test_numbers_that_json_has_not_are_none_for_the_page(client: Client) -> None:
    name = bundle(client, "odd", [1.0], final_loss=math.nan)
    place = client.studio.where / "runs" / name  # type: ignore[attr-defined]
    (place / "events.jsonl").write_text('{"event": "step", "step": 1, "lr": 0.1, "norm": Infinity}\n')
    assert json.loads(client.get("/api/runs").text, parse_constant=pytest.fail)[0]["final_loss"] is None
    run = json.loads(client.get(f"/api/runs/{name}").text, parse_constant=pytest.fail)
    assert run["vitals"][0]["norm"] is None


def test_ticks_of_a_logarithmic_axis() -> None:
    wanted = [
        ((0.1, 10, 100, 22), [0.1, 0.2, 0.5, 1, 2, 5, 10]),
        ((0.1, 10, 50, 22), [0.1, 1, 10]),  # no room for 2 and 5
        ((1e-6, 10, 10, 22), [1e-6, 1e-3, 1]),  # nor for each power of ten
        ((2, 3, 1000, 22), [2, 2.2, 2.4, 2.6, 2.8, 3]),  # less than a decade
        ((0.38, 4.5, 56, 22), [2, 4]),  # one power of ten
        ((1, 10000, 250, 50), [a * 10**b for b in range(4) for a in (1, 2, 5)] + [10000]),
    ]
    script = "console.log(JSON.stringify(told.map((t) => curves.logTicks(...t))))"
    assert by_the_page(script, [t for t, _ in wanted]) == [ticks for _, ticks in wanted]


def test_curves_over_a_common_axis() -> None:
    script = """
    const [a, b] = [{ first: 0, values: [3, 0, -1] }, { first: 2, values: [5, null, 4] }], plain = { stride: 2, head: 0 };
    console.log(JSON.stringify([
      curves.aligned(plain, [a, b], { x: false, y: false }), curves.aligned(plain, [a, b], { x: true, y: true }),
      [0, 2, 3, 4, 5].map((slot) => curves.valueAt(b, slot)), curves.aligned(plain, [], { x: false, y: false }).x,
    ]));
    """
    whole, log, read, empty = by_the_page(script, 0)
    assert whole == {"slots": [0, 1, 2, 3, 4], "x": [0, 2, 4, 6, 8],
                     "values": [[3, 0, -1, None, None], [None, None, 5, None, 4]]}  # fmt: skip
    assert (log["x"], log["values"]) == ([2, 4, 6, 8], [[None] * 4, [None, 5, None, 4]])
    assert (read, empty) == ([None, 5, 5, 4, None], [])
