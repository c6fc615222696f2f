"""Settings are read once, checked, and can be changed inside a with-block."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from anneal import settings
from anneal.errors import SettingError
from anneal.settings import Settings, read

RIGHT = [
    ({}, Settings()),
    ({"ANNEAL_DEBUG": "6"}, Settings(debug=6)),
    ({"ANNEAL_DEBUG": ""}, Settings()),
    ({"ANNEAL_DEVICE": "WebGPU"}, Settings(device="webgpu")),
    ({"ANNEAL_ADAPTER": "llvmpipe"}, Settings(adapter="llvmpipe")),
    ({"ANNEAL_REQUIRE_WEBGPU": "1", "ANNEAL_TRUSTED": "0"}, Settings(require_webgpu=True, trusted=False)),
    ({"HOME": "/nowhere", "ANNEALING": "1"}, Settings()),
]

WRONG = [
    ({"ANNEAL_DEBUG": "7"}, "ANNEAL_DEBUG='7' is not a valid value; use one of: 0 to 6"),
    ({"ANNEAL_DEBUG": "yes"}, "use one of: 0 to 6"),
    ({"ANNEAL_DEVICE": "cuda"}, "use one of: auto, cpu, webgpu"),
    ({"ANNEAL_TRUSTED": "2"}, "use one of: 0, 1"),
    *[
        ({f"ANNEAL_{name}": value}, f"ANNEAL_{name}={value!r} is not a valid value; use one of: 0, 1")
        for name in ("OFFLINE", "CACHE", "BUNDLE", "TRUSTED", "REQUIRE_WEBGPU")
        for value in ("yes", "no", "true", "off", "01", "1.0", "-1", "\u0661")
    ],
    *[
        ({"ANNEAL_BEAM": value}, "use one of: 0 to 32")
        for value in ("33", "-1", "1_0", "\u0661", "1e1", "+1", "9" * 5000)
    ],
    *[({"ANNEAL_DEBUG": value}, "use one of: 0 to 6") for value in ("-1", "1_0", "\u0661", "1.0")],
    ({"ANNEAL_DEVCE": "cpu"}, "ANNEAL_DEVCE is not a setting; the settings are: ANNEAL_DEBUG, ANNEAL_DEVICE"),
]


@pytest.mark.parametrize(("environ", "expected"), RIGHT)
def test_reads(environ: dict[str, str], expected: Settings) -> None:
    assert read(environ) == expected


@pytest.mark.parametrize(("environ", "text"), WRONG)
def test_a_wrong_value_lists_the_right_ones(environ: dict[str, str], text: str) -> None:
    with pytest.raises(SettingError) as error:
        read(environ)
    assert text in str(error.value)


def test_override_holds_inside_the_block_only() -> None:
    before = settings.current()
    with settings.override(debug=3, trusted=False) as inside:
        assert settings.current() is inside
        assert (inside.debug, inside.trusted) == (3, False)
        with settings.override(debug=1):
            assert settings.current().trusted is False
    assert settings.current() is before


@pytest.mark.parametrize("changes", [{"debug": 9}, {"device": "tpu"}, {"colour": 1}])
def test_override_checks_what_it_is_given(changes: dict[str, object]) -> None:
    before = settings.current()
    with pytest.raises(SettingError), settings.override(**changes):
        pass
    assert settings.current() is before


def test_the_environment_is_read_here_and_other_programs_variables_are_said() -> None:
    """Outside settings.py no variable of anneal's is read, and each of another program's stands in the documents."""
    root = Path(settings.__file__).parent
    used: dict[str, set[str]] = {}
    for path in root.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if path != Path(settings.__file__):
            assert "getenv" not in text, path
            found = re.findall(r'(?:(?:settings|environment)\.variable\(|environ(?:\.\w+\(|\[))"(\w+)"', text)
            found += re.findall(r'"(\w+)" in os\.environ', text)
            used |= {name: used.get(name, set()) | {str(path)} for name in found}
    assert {"NO_COLOR", "COLUMNS"} <= set(used)
    assert not [name for name in used if name.startswith("ANNEAL_")]
    said = (
        (root.parent / "docs" / "environment.md").read_text(encoding="utf-8").partition("belong to other programs")[2]
    )
    assert {name: where for name, where in used.items() if f"`{name}" not in said} == {}
