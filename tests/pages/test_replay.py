"""Pages replayed outside a browser (benchmarks/web_replay.py): as on a GPU that no browser of the tests has."""

from __future__ import annotations

from pathlib import Path

import pytest

from anneal.runtime import Context
from benchmarks.web_replay import replay
from tests.pages.helpers import recipe_of, spoilt, too_large, write


@pytest.mark.parametrize("name", ["mlp", pytest.param("conv", marks=pytest.mark.ci)])
def test_an_export_is_right_on_the_webgpu_device(
    name: str, webgpu: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Context("cpu"):
        write(recipe_of(name, train=True)[1], tmp_path, profiles=["desktop", "browser", "software"])
    assert replay(tmp_path)
    told = capsys.readouterr().out
    for profile in ("browser", "software"):
        for function in ("predict", "train"):
            assert f"{profile}: {function} out is off by " in told
    spoilt(tmp_path, 0, too_large)
    assert not replay(tmp_path)
    assert "wrong on " in capsys.readouterr().out
