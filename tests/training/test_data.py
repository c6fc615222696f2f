"""Pictures to learn from: CIFAR-10's files as they are, or shapes, and then the user is told."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from anneal import settings
from anneal.assets import ASSETS, Asset, location
from anneal.errors import DataError
from anneal.training import cifar10, downloads, images, shapes

NAME = "cifar10/cifar-10-binary.tar.gz"


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path) -> Iterator[None]:
    cifar10.cache_clear()
    with settings.override(cache_dir=str(tmp_path), offline=True):
        yield
    cifar10.cache_clear()


def test_shapes_are_of_the_seed_and_of_all_kinds() -> None:
    pictures, labels = shapes(np.random.default_rng(3), 200)
    again, _ = shapes(np.random.default_rng(3), 200)
    np.testing.assert_array_equal(pictures, again)
    assert pictures.dtype == np.float32
    assert 0 <= pictures.min() < pictures.max() <= 1
    assert set(labels) == set(range(10))
    # A ring has ground in its middle and a disc has not: the class shows in the picture.
    assert len({picture.tobytes() for picture in pictures}) == 200


def test_without_cifar10_there_are_shapes_and_a_word_about_it() -> None:
    with pytest.raises(DataError, match="ANNEAL_OFFLINE"):
        cifar10()
    found = images(1, train=30, test=20)
    assert found.about.startswith("CIFAR-10 is not available (")
    assert str(location(ASSETS[NAME])) in found.about
    assert "30 pictures of ten shapes" in found.about
    assert found.train.shape == (30, 3, 32, 32)
    assert found.test_labels.shape == (20,)
    assert len(found.classes) == 10


def test_nothing_is_downloaded_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def fetch(asset: Asset) -> Path:
        asked.append(asset.name)
        raise DataError("no network")

    monkeypatch.setattr("anneal.training._data.fetch", fetch)
    with settings.override(offline=False):
        found = images(1, train=30, test=20)
        assert "--download fetches it, 170 MB" in found.about
        assert str(location(ASSETS[NAME])) in found.about
        assert asked == []
        with downloads(True):
            assert "no network" in images(1, train=30, test=20).about
        assert asked == [NAME]
        assert "--download" in images(1, train=30, test=20).about


def test_cifar10_is_read_from_its_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    files = {f"data_batch_{i}.bin": 4 for i in (5, 1, 2, 3, 4)} | {"test_batch.bin": 3}
    rows = {name: rng.integers(0, 256, (count, 3073), dtype=np.uint8) for name, count in files.items()}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, data in [*rows.items(), ("batches.meta.txt", np.zeros(3, np.uint8))]:
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = data.nbytes
            archive.addfile(member, io.BytesIO(data.tobytes()))
    data = packed.getvalue()
    asset = replace(ASSETS[NAME], sha256=hashlib.sha256(data).hexdigest(), bytes=len(data))
    monkeypatch.setitem(ASSETS, NAME, asset)
    location(asset).parent.mkdir(parents=True)
    location(asset).write_bytes(data)
    found = images(1)
    assert found.about.startswith("CIFAR-10 (Krizhevsky")
    assert (found.train.shape, found.test.shape) == ((20, 3, 32, 32), (3, 3, 32, 32))
    np.testing.assert_array_equal(found.train_labels[:4], rows["data_batch_1.bin"][:, 0])
    second = rows["data_batch_2.bin"][1, 1:].reshape(3, 32, 32)
    np.testing.assert_allclose(found.train[5], second / 255, rtol=1e-6)
