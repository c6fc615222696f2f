"""Random numbers: the bits are threefry's, streams repeat, distributions have their moments, replays draw anew."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from anneal import ops
from anneal.errors import DeviceError, DTypeError, ShapeError
from anneal.tensor import Tensor, jit, manual_seed, random
from tests.helpers import reference
from tests.reference import evaluate


def test_the_bits_are_threefry() -> None:
    manual_seed(1234)
    random.random_bits(3)
    got = reference(random.random_bits(1000))
    pytest.importorskip("jax")
    from jax.extend.random import threefry_2x32

    key = np.array([1234, 1], np.uint32)
    counts = np.concatenate([np.arange(1000, dtype=np.uint32), np.zeros(1000, np.uint32)])
    np.testing.assert_array_equal(got, np.asarray(threefry_2x32(key, counts))[:1000])


def test_known_bits() -> None:
    """The published test vector of threefry2x32-20: key 0, counter 0."""
    manual_seed(0)
    assert reference(random.random_bits(1))[0] == 0x6B200159


def test_the_device_draws_the_same_bits() -> None:
    manual_seed(5)
    draws = [random.random_bits(7, 11), random.rand(64), random.randint(-5, 9, (50,))]
    for d in draws:
        np.testing.assert_array_equal(reference(d), d.numpy())


def test_webgpu_draws_the_same_bits() -> None:
    def draw(device: str) -> list[np.ndarray[tuple[int, ...], np.dtype[np.uint32]]]:
        manual_seed(5)
        calls = [random.random_bits(7, 11, device=device), random.rand(999, device=device)]
        calls += [random.randint(-5, 9, (50,), device=device), random.randperm(50, device=device)]
        return [c.numpy() for c in calls]

    try:
        got = draw("webgpu")
    except DeviceError as e:
        pytest.skip(str(e).splitlines()[0])
    for a, b in zip(draw("cpu"), got, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_seed_starts_the_stream_anew() -> None:
    def draw() -> list[list[float]]:
        return [Tensor.rand(4).tolist(), Tensor.randn(3).tolist(), Tensor.randperm(5).tolist()]

    manual_seed(3)
    first = draw()
    assert draw() != first
    manual_seed(3)
    assert draw() == first
    manual_seed(4)
    assert draw() != first


def test_generators_are_independent() -> None:
    a, b = random.Generator(1), random.Generator(1)
    x = reference(random.rand(5, generator=a))
    reference(random.rand(5))
    np.testing.assert_array_equal(x, reference(random.rand(5, generator=b)))


def test_uniform_floats() -> None:
    manual_seed(0)
    x = reference(random.rand(100_000))
    assert x.dtype == np.float32
    assert x.min() >= 0
    assert x.max() < 1
    assert abs(x.mean() - 0.5) < 0.005
    assert abs(x.var() - 1 / 12) < 0.002
    half = reference(random.rand(100_000, dtype="float16"))
    assert half.max() < 1
    y = reference(random.uniform(1000, low=-3, high=5))
    assert y.min() >= -3
    assert y.max() < 5


def test_normal_floats() -> None:
    manual_seed(0)
    x = reference(random.randn(100_000)).astype(np.float64)
    assert np.isfinite(x).all()
    assert abs(x.mean()) < 0.01
    assert abs(x.var() - 1) < 0.02
    assert abs((x**4).mean() - 3) < 0.15
    y = reference(random.normal(50_000, mean=2, std=0.5))
    assert abs(y.mean() - 2) < 0.01
    assert abs(y.std() - 0.5) < 0.01


def test_integers() -> None:
    manual_seed(0)
    x = reference(random.randint(-2, 3, (20_000,)))
    assert x.dtype == np.int32
    counts = np.bincount(x + 2, minlength=5)
    assert len(counts) == 5
    assert abs(counts / 4000 - 1).max() < 0.1
    assert reference(random.randint(2, shape=(9,))).max() <= 1
    wide = reference(random.randint(-(2**31), 2**31, (1000,)))
    assert wide.min() < -(2**30)
    assert wide.max() > 2**30


def test_permutations_and_coins() -> None:
    manual_seed(0)
    p = random.randperm(100).numpy()
    assert sorted(p.tolist()) == list(range(100))
    assert p.tolist() != list(range(100))
    coins = reference(random.bernoulli(Tensor([0.0, 0.3, 1.0]).expand(10_000, 3)))
    np.testing.assert_allclose(coins.mean(0), [0, 0.3, 1], atol=0.02)


def test_choices_follow_their_probabilities() -> None:
    manual_seed(0)
    p = np.array([0.1, 0.2, 0.7], np.float32)
    for draws in (
        random.categorical(Tensor(np.log(p)), 20_000),
        random.multinomial(Tensor(p), 20_000, replacement=True),
    ):
        share = np.bincount(reference(draws), minlength=3) / 20_000
        np.testing.assert_allclose(share, p, atol=0.015)
    assert random.categorical(Tensor(np.zeros((4, 5), np.float32))).shape == (4,)
    both = reference(random.multinomial(Tensor(np.ones((6, 4), np.float32)), 4))
    np.testing.assert_array_equal(np.sort(both, 1), np.tile(np.arange(4), (6, 1)))
    only = reference(random.multinomial(Tensor([0.0, 1.0, 0.0]), 5, replacement=True))
    assert (only == 1).all()


@pytest.mark.usefixtures("device")
def test_many_choices_of_many() -> None:
    """Half of the classes are impossible; each row has probabilities of its own, and they are no sums of 1."""
    manual_seed(0)
    rng = np.random.default_rng(5)
    p = np.where(rng.random((2, 700)) < 0.5, 0, rng.random((2, 700))).astype(np.float32)
    p[:, [0, -1]] = 0
    often, once = random.multinomial(Tensor(p), 30_000, replacement=True).numpy(), random.multinomial(Tensor(p), 300)
    for row, drawn, different in zip(p, often, once.numpy(), strict=True):
        share = np.bincount(drawn, minlength=700) / 30_000
        assert not share[row == 0].any()
        np.testing.assert_allclose(np.cumsum(share), np.cumsum(row / row.sum()), atol=0.012)
        assert len({*different}) == 300
        assert row[different].all()


def test_drawing_again_finds_the_kernels_again() -> None:
    from anneal.runtime import cache_statistics

    random.rand(33).realize()
    before = cache_statistics()
    for _ in range(3):
        random.rand(33).realize()
    after = cache_statistics()
    assert after[0] - before[0] == 3
    assert after[1] == before[1]


def test_replayed_steps_draw_new_numbers() -> None:
    @jit
    def step() -> Tensor:
        return (Tensor.rand(8) + Tensor.rand(8) * 10).realize()

    manual_seed(11)
    first = [step().tolist() for _ in range(6)]
    assert len({tuple(x) for x in first}) == 6
    manual_seed(11)
    again = [step().tolist() for _ in range(6)]
    assert len({tuple(x) for x in again}) == 6
    assert all(0 <= v < 11 for x in again for v in x)


def test_dropout_in_a_replayed_step() -> None:
    x = Tensor(np.ones(64, np.float32))

    @jit
    def step() -> Tensor:
        from anneal.tensor.functional import dropout

        return dropout(x, 0.5)

    assert len({tuple(step().tolist()) for _ in range(6)}) == 6


def test_a_dtype_of_bits_holds_exactly() -> None:
    manual_seed(2)
    bits = random.random_bits(1000)
    manual_seed(2)
    unit = random.rand(1000)
    b, u = evaluate([bits.uop, unit.uop])
    np.testing.assert_array_equal(u, (b >> 8).astype(np.float32) * np.float32(2**-24))


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: random.rand(-1), ShapeError),
        (lambda: random.rand(2, dtype="int32"), DTypeError),
        (lambda: random.randint(3, 3), ShapeError),
        (lambda: random.randint(0, 300, dtype="uint8"), DTypeError),
        (lambda: random.rand(1 << 31), ShapeError),
        (lambda: random.multinomial(Tensor([1.0, 1.0]), 3), ShapeError),
    ],
)
def test_wrong_arguments(call: Callable[[], Tensor], error: type[Exception]) -> None:
    with pytest.raises(error):
        call()


def test_host_numbers_follow_the_seed() -> None:
    manual_seed(9)
    a = ops.host_normal((1000,), 2.0)
    b = ops.host_uniform((1000,), 0.5)
    manual_seed(9)
    np.testing.assert_array_equal(a, ops.host_normal((1000,), 2.0))
    assert math.isclose(a.std(), 2.0, rel_tol=0.1)
    assert abs(b).max() <= 0.5
