"""The benchmark of recordings: it ends, whatever a script takes, and its table says what was measured."""

from __future__ import annotations

import pytest

from benchmarks.recording import FEWEST, SCRIPTS, main, measure, page, verdict


@pytest.mark.parametrize("name", ["functions", "line fitted"])
def test_a_script_that_takes_longer_than_the_limit_has_fewer_rounds(name: str) -> None:
    found = measure(name, rounds=50, seconds=0.0, limit=0.0)
    assert len(found) == FEWEST
    for r in found:
        assert min(r[k] for k in ("plain", "own", "step", "kernels", "between")) > 0
        assert 0.5 < r["parts"] < 1.1, "measured parts of one and the same steps"


def test_a_round_has_a_block_of_each_kind() -> None:
    assert len(measure("functions", rounds=2, seconds=0.0)) == 2


def test_all_scripts_can_be_read() -> None:
    for name, text in SCRIPTS.items():
        compile(text, name, "exec")


def test_the_table_has_the_parts_of_a_step() -> None:
    """Kernels that are 60 % of a step need a reason; with what lies between them the parts sum to it."""
    one = {"plain": 1.0, "own": 1.1, "step": 1.05, "kernels": 0.63, "parts": 0.98, "between": 0.38, "whole": 1.0}
    rounds = [{**one, "reasons": ["of a step of 1.05 s a run is 630 ms, Python between the runs 399 ms"]}] * 4
    found = verdict("heat", rounds)
    assert (found["agree"], found["whole"], found["rounds"], found["reasons"]) == (False, True, 4, ["Python between"])
    text = page([found])
    assert "| heat | 4 | 1000.0 | 1.10 (1.10 to 1.10) | 0.60 (0.60 to 0.60) | 38% | 0.98 (0.98 to 0.98) |" in text
    assert text.endswith(
        "1 scripts: 1 at most 1.5 x as slow, 0 agree within 15 %, 1 or say why; "
        "the parts of 1 sum to the step within 15 %"
    )


def test_the_command_ends_with_the_table(capfd: pytest.CaptureFixture[str]) -> None:
    main(["--rounds", "1", "--busy", "0", "--seconds", "0", "--script", "functions"])
    out = capfd.readouterr().out
    assert out.startswith("| script | rounds |")
    assert out.count("| functions | 1 |") == 1
    assert "1 scripts: " in out.splitlines()[-1]
