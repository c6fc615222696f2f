"""The maker of the kernels of a test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from anneal import settings


@pytest.fixture
def in_numpy() -> Iterator[None]:
    """NumPy, for tests of its programs."""
    with settings.override(cpu="numpy"):
        yield
