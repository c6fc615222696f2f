"""Distributions beside torch's values, samples by their moments, gradients through them, jit."""

from __future__ import annotations

import json
import math
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import anneal
import anneal.distributions as d
from anneal.errors import GradientError, MissingMethodError, SettingError
from anneal.tensor import Tensor, jit, manual_seed
from tests.distributions.rows import (
    PAIRS,
    RELAXED,
    ROWS,
    TABLE,
    WRONG,
    divergence,
    facts,
    made,
    maps,
    others,
    refused,
    transformed,
)
from tests.tiers import thinned

LOADED: dict[str, Any] = json.loads(TABLE.read_text())


def same(mine: Any, torchs: Any, what: str) -> None:
    if torchs is None or mine is None or isinstance(torchs, bool):
        assert mine == torchs, what
    elif isinstance(torchs, dict):
        for name in torchs:
            same(mine[name], torchs[name], f"{what} {name}")
    else:
        try:
            np.testing.assert_allclose(mine, torchs, rtol=3e-5, atol=3e-6, err_msg=what)
        except ValueError:  # several of different shapes
            for n, (a, b) in enumerate(zip(mine, torchs, strict=True)):
                same(a, b, f"{what} {n}")


@pytest.mark.parametrize("name", thinned([*ROWS, *RELAXED], test=3, ci=3))
def test_what_is_known_is_torchs(name: str, device: str) -> None:
    same(facts(anneal, {**ROWS, **RELAXED}[name]), LOADED["facts"][name], name)


@pytest.mark.parametrize("kind", PAIRS)
def test_a_divergence_is_torchs(kind: str) -> None:
    same(divergence(anneal, kind), LOADED["divergences"][kind], kind)


def test_what_the_second_excludes_is_infinitely_far() -> None:
    p, q = [d.Bernoulli(Tensor(probs)) for probs in ([0.0, 0.5, 1.0, 0.0, 0.5, 1.0], [0.5, 1.0, 1.0, 0.0, 0.0, 0.0])]
    # torch 2.14
    same(d.kl_divergence(p, q).tolist(), [math.log(2), math.inf, 0.0, 0.0, math.inf, math.inf], "Bernoulli")


def test_a_mixture_over_a_larger_batch() -> None:
    parts = d.Normal(Tensor([-1.0, 2.0]), Tensor([1.0, 0.5]))
    wide = d.MixtureSameFamily(d.Categorical(Tensor([1.0, 3.0])), parts).expand((2,))
    assert wide.batch_shape == wide.sample().shape == (2,)
    same(wide.log_prob(Tensor([0.3, 0.3])).tolist(), [-3.1080, -3.1080], "mixture")  # torch 2.14


def test_distributions_made_of_others_are_torchs(device: str) -> None:
    same(others(anneal), LOADED["others"], "others")


def test_transformed_distributions_are_torchs(device: str) -> None:
    mine = transformed(anneal)
    for name, torchs in LOADED["transformed"].items():
        for a, b in zip(mine[name], torchs, strict=True):
            same(a, b, name)


def test_transforms_to_constraints_are_torchs(device: str) -> None:
    mine = maps(anneal)
    assert mine.keys() == LOADED["maps"].keys()
    for name, torchs in LOADED["maps"].items():
        assert (mine[name] is None) is (torchs is None), name
        for n, (a, b) in enumerate(zip(mine[name] or (), torchs or (), strict=True)):
            same(a, b, f"{name} {n}")


def test_constraints_of_ones_own_are_registered() -> None:
    class Even(d.constraints.Constraint):
        def check(self, value: Tensor) -> Tensor:
            return value % 2 == 0

    registry = d.constraint_registry.ConstraintRegistry()

    @registry.register(Even)
    def twice(of: Even) -> d.Transform:
        return d.AffineTransform(0.0, 2.0)

    assert registry(Even())(3.0).item() == 6.0
    registry.register(d.constraints.positive, lambda of: d.SoftplusTransform())
    assert registry(d.constraints.greater_than(5.0)) == d.SoftplusTransform()  # of a class, as torch has it
    with pytest.raises(NotImplementedError, match=r"no transform to Real\(\) is registered"):
        registry(d.constraints.real)
    with pytest.raises(TypeError, match="takes a Constraint or a class of them"):
        registry.register(2, twice)


def test_a_log_normal_is_a_transformed_normal() -> None:
    one = d.LogNormal(Tensor([0.5, 1.0]), 2.0)
    assert isinstance(one, d.TransformedDistribution)
    assert not isinstance(one, d.Normal)
    assert isinstance(one.base_dist, d.Normal)
    assert one.transforms == [d.ExpTransform()]
    assert type(one.expand((3, 2))) is d.LogNormal
    assert one.expand((3, 2)).loc.shape == (3, 2)
    plain = d.TransformedDistribution(d.Normal(0.0, 1.0), d.ExpTransform())
    assert d.kl_divergence(d.LogNormal(1.0, 1.0), plain).item() == 0.5


@pytest.mark.parametrize("name", RELAXED)
def test_relaxed_draws_have_the_chances(name: str) -> None:
    manual_seed(3)
    parameters = {k: v for k, v in RELAXED[name][1].items() if k != "temperature"}
    one = made(anneal, RELAXED[name][0], RELAXED[name][1])
    x = one.sample((4000,))
    assert one.support.check(x).float().mean().item() > 0.99
    hard = (x > 0.5).float() if "Bernoulli" in name else (x == x.amax(-1, keepdim=True)).float()
    np.testing.assert_allclose(hard.mean(0).numpy(), one.probs.numpy(), atol=0.03)
    for p in (Tensor(v, requires_grad=True) for v in parameters.values()):
        made(anneal, RELAXED[name][0], {**RELAXED[name][1], next(iter(parameters)): p}).rsample().sum().backward()
        assert p.grad is not None


def test_a_sigmoid_is_kept_off_one_by_its_dtype() -> None:
    for dtype, eps in ((anneal.float64, 2.0**-52), (anneal.float32, 2.0**-23)):
        assert d.SigmoidTransform()(Tensor(40.0, dtype=dtype)).item() == 1 - eps


def test_gradients_flow_through_transforms() -> None:
    loc = Tensor(0.5, requires_grad=True)
    policy = d.TransformedDistribution(d.Normal(loc, 1.0), [d.TanhTransform(cache_size=1)])
    manual_seed(3)
    action = policy.rsample((6,))
    (action.sum() + policy.log_prob(action).sum()).backward()
    assert loc.grad is not None
    want = ((1 - action * action) + 2 * action).sum()  # of tanh, and of -log(1 - tanh^2)
    assert loc.grad.item() == pytest.approx(want.item(), rel=1e-3)
    with pytest.raises(ValueError, match="transforms are Transforms"):
        d.TransformedDistribution(d.Normal(0.0, 1.0), [2])


@pytest.mark.parametrize("name", WRONG)
def test_what_torch_refuses_is_refused(name: str) -> None:
    assert refused(anneal, WRONG[name]) is LOADED["refused"][name]


def test_checks_can_be_left_out() -> None:
    assert d.Normal(0.0, -1.0, validate_args=False).scale.item() == -1.0
    d.Distribution.set_default_validate_args(False)
    try:
        assert d.Uniform(0.0, 1.0).log_prob(2.0).item() == -np.inf
    finally:
        d.Distribution.set_default_validate_args(True)


COUNT = 20_000
# of a heavy tail, or of too many values for its moments
LONG = ("Cauchy", "HalfCauchy", "StudentT", "Pareto", "Weibull", "LogNormal")


@pytest.mark.parametrize("name", [n for n in ROWS if not n.startswith(LONG)])
def test_samples_have_the_moments(name: str) -> None:
    manual_seed(3)
    one = made(anneal, ROWS[name][0], ROWS[name][1])
    x = one.sample((COUNT,))
    assert x.shape == (COUNT, *one.batch_shape, *one.event_shape)
    assert not x.requires_grad
    support = one.support.check(x)
    assert support.all().item(), name
    if name.startswith("Categorical"):
        shares = (x.unsqueeze(-1) == Tensor.arange(3)).float().mean(0)
        np.testing.assert_allclose(shares.numpy(), one.probs.numpy(), atol=0.02)
        return
    values, mean, deviation = x.numpy().astype(np.float64), one.mean.numpy(), one.stddev.numpy()
    np.testing.assert_array_less(np.abs(values.mean(0) - mean), 5 * deviation / COUNT**0.5 + 1e-6)
    np.testing.assert_allclose(values.std(0), deviation, rtol=0.06, atol=1e-6)


@pytest.mark.parametrize("size", [1e-4, 1e-2, 1e5, 1e7])
def test_samples_of_small_and_large_parameters_have_the_moments(size: float) -> None:
    """Draws of gamma distributions below the least float, and logarithms of factorials that differ by less than their
    last bit."""
    manual_seed(3)
    if size < 1:
        several = [d.Beta(size, 3 * size), d.Dirichlet(Tensor([size, 2 * size, size]))]
    else:
        several = [d.Poisson(size), d.NegativeBinomial(size / 10, 0.9), d.Gamma(size, 1.0)]
    for one in several:
        x, deviation = one.sample((COUNT,)), one.stddev.numpy()
        assert one.log_prob(x).isfinite().all().item()
        values = x.numpy().astype(np.float64)
        np.testing.assert_array_less(np.abs(values.mean(0) - one.mean.numpy()), 4 * deviation / COUNT**0.5)
        np.testing.assert_allclose(values.std(0), deviation, rtol=0.03)


@pytest.mark.parametrize("name", [n for n in ROWS if n.startswith(LONG)])
def test_samples_lie_where_the_chances_say(name: str) -> None:
    manual_seed(3)
    one = made(anneal, ROWS[name][0], ROWS[name][1])
    x = one.sample((COUNT,))
    if name == "StudentT":  # its cdf is not there, nor in torch
        below = (x < one.loc).float().mean(0)
        np.testing.assert_allclose(below.numpy(), 0.5, atol=0.02)
        return
    for p in (0.1, 0.5, 0.9):
        below = (x < one.icdf(Tensor([p, p, p]))).float().mean(0)
        np.testing.assert_allclose(below.numpy(), p, atol=0.02)


FLOWS = (
    "Normal",
    "LogNormal",
    "Laplace",
    "Gumbel",
    "Uniform",
    "Exponential",
    "HalfNormal",
    "Weibull",
    "MultivariateNormal",
)


@pytest.mark.parametrize("name", FLOWS)
def test_gradients_flow_through_draws(name: str, device: str) -> None:
    """A draw's derivative by a parameter, the random numbers staying what they are, is a difference's."""
    kind, given, _ = ROWS[name]
    for which in (k for k, v in given.items() if isinstance(v, list) and k != "covariance_matrix"):
        p = Tensor(given[which], requires_grad=True)

        def draw(p: Tensor, which: str = which) -> Tensor:
            manual_seed(7)
            return made(anneal, kind, {**given, which: p}).rsample((3,)).sum()  # type: ignore[no-any-return]

        draw(p).backward()
        assert p.grad is not None
        step = 1e-2
        for n in range(p.numel()):
            moved = np.array(given[which], np.float32)
            up, down = moved.copy(), moved.copy()
            up[n] += step
            down[n] -= step
            with anneal.no_grad():
                slope = (draw(Tensor(up)).item() - draw(Tensor(down)).item()) / (2 * step)
            assert p.grad.tolist()[n] == pytest.approx(slope, rel=0.02, abs=0.02)


@pytest.mark.parametrize("name", ["Gamma", "Beta", "Dirichlet", "StudentT", "Chi2"])
def test_a_draw_without_a_derivative_says_so(name: str) -> None:
    kind, given, _ = ROWS[name]
    assert made(anneal, kind, given).rsample((2,)).shape[0] == 2
    with pytest.raises(GradientError, match=f"{name}.rsample: draws from it are not differentiable"):
        made(anneal, kind, given, wants=True).rsample()


def test_cdf_has_the_ends_of_the_support() -> None:
    """As in torch, which checks what transforms make of a value, not the value."""
    inf, moved = float("inf"), d.transforms.AffineTransform(1.0, -2.0)
    ends = [
        (d.LogNormal(0.0, 1.0), 0.0, inf),
        (d.Weibull(1.0, 2.0), 0.0, inf),
        (d.HalfNormal(1.0), 0.0, inf),
        (d.HalfCauchy(1.0), 0.0, inf),
        (d.Exponential(1.0), 0.0, inf),
        (d.Pareto(2.0, 1.0), 2.0, inf),
        (d.Gamma(2.0, 1.0), 0.0, inf),
        (d.Uniform(0.0, 1.0), 0.0, 1.0),
        (d.Normal(0.0, 1.0), -inf, inf),
        (d.TransformedDistribution(d.Normal(0.0, 1.0), d.transforms.SigmoidTransform()), 0.0, 1.0),
        (d.TransformedDistribution(d.Uniform(0.0, 1.0), moved), -1.0, 1.0),
        (d.MixtureSameFamily(d.Categorical(Tensor.ones(2)), d.LogNormal(Tensor.zeros(2), 1.0)), 0.0, inf),
    ]
    for one, low, high in ends:
        assert one.cdf(Tensor(low)).item() == 0.0, one
        assert one.cdf(Tensor(high)).item() == 1.0, one
    for one in (d.LogNormal(0.0, 1.0), d.Weibull(1.0, 1.0)):
        for beyond in (-1.0, -inf, float("nan")):
            with pytest.raises(SettingError, match="not within its support"):
                one.cdf(Tensor(beyond))
        with pytest.raises(SettingError, match="not within its support"):
            one.log_prob(Tensor(0.0))


def test_what_is_not_there_is_named() -> None:
    with pytest.raises(MissingMethodError, match=r"Bernoulli has no rsample\(\)"):
        d.Bernoulli(0.5).rsample()
    with pytest.raises(MissingMethodError, match=r"Independent has no cdf\(\)"):
        d.Independent(d.Normal(Tensor.zeros(2), 1.0), 1).cdf(Tensor.zeros(2))
    for p, q in ((d.LogNormal(0.0, 1.0), d.Normal(0.0, 1.0)), (d.HalfCauchy(1.0), d.HalfCauchy(1.0))):
        with pytest.raises(MissingMethodError, match="register_kl adds one"):
            d.kl_divergence(p, q)


def test_draws_and_scores_under_jit(device: str) -> None:
    w = Tensor([0.5, 1.5])

    @jit
    def step(x: Tensor) -> tuple[Tensor, Tensor]:
        q = d.Normal(x, w.exp())
        z = q.rsample()
        return z, q.log_prob(z).sum() - d.kl_divergence(q, d.Normal(0.0, 1.0)).sum()

    seen = [step(Tensor([float(n), 0.0])) for n in range(4)]
    assert len({z.tolist()[1] for z, _ in seen}) == 4  # each call draws anew
    for n, (z, score) in enumerate(seen):
        q = d.Normal(Tensor([float(n), 0.0]), w.exp())
        expected = q.log_prob(z).sum() - d.kl_divergence(q, d.Normal(0.0, 1.0)).sum()
        assert score.item() == pytest.approx(expected.item(), rel=1e-4)


def test_a_policy_learns() -> None:
    """REINFORCE, and the straight-through row beside it."""
    manual_seed(0)
    logits = anneal.nn.Parameter(Tensor.zeros(3))
    optimizer = anneal.optim.SGD([logits], 0.5)
    for _ in range(40):
        policy = d.Categorical(logits=logits)
        action = policy.sample((16,))
        loss = -(policy.log_prob(action) * (action == 2).float()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert logits.softmax(-1)[2].item() > 0.8
    row = d.OneHotCategoricalStraightThrough(logits=logits).rsample()
    (row * Tensor([1.0, 2.0, 3.0])).sum().backward()
    assert logits.grad is not None


def test_counts_that_differ_have_entropies_and_no_common_support() -> None:
    """Values beyond a smaller count have no part in its entropy, nor in the gradient."""
    counts, chances = [[5.0], [7.0]], [0.3, 0.4, 0.0]
    probs = Tensor(chances, requires_grad=True)
    together = d.Binomial(Tensor(counts), probs=probs)
    alone = [[d.Binomial(int(n), probs=Tensor(p)).entropy().item() for p in chances] for (n,) in counts]
    np.testing.assert_allclose(together.entropy().detach().numpy(), alone, rtol=1e-5)
    np.testing.assert_allclose(together.perplexity().detach().numpy(), np.exp(alone), rtol=1e-5)
    together.entropy()[:, :2].sum().backward()
    slopes = [np.log((1 - p) / p) for p in chances[:2]]  # those of counts of 1
    single = Tensor(chances[:2], requires_grad=True)
    d.Binomial(1, probs=single).entropy().sum().backward()
    np.testing.assert_allclose(single.grad.numpy(), slopes, rtol=1e-4)
    assert np.isfinite(probs.grad.numpy()[:2]).all()
    with pytest.raises(MissingMethodError, match="counts that are equal, not of 5 to 7"):
        together.enumerate_support()
    assert d.Binomial(Tensor([3.0, 3.0]), probs=0.5).enumerate_support().shape == (4, 2)


def test_a_divergence_of_binomials_of_other_counts_is_a_sum_over_the_counts() -> None:
    """The binomial coefficients differ then, so the divergence is no multiple of that of one trial."""
    counts, more, chances, others = [3, 5, 4], [3, 4, 6], [0.5, 0.2, 0.3], [0.1, 0.2, 0.3]
    expected = [np.inf if n > m else 0.0 for n, m in zip(counts, more, strict=True)]
    for i, (n, m, p, q) in enumerate(zip(counts, more, chances, others, strict=True)):
        for k in range(n + 1 if n <= m else 0):
            mine, theirs = (math.comb(a, k) * b**k * (1 - b) ** (a - k) for a, b in ((n, p), (m, q)))
            expected[i] += mine * math.log(mine / theirs)
    found = d.kl_divergence(d.Binomial(Tensor(counts), Tensor(chances)), d.Binomial(Tensor(more), Tensor(others)))
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)


def test_counts_of_zero_have_a_slope_and_supports_the_dtype_of_the_chances() -> None:
    """The logarithm of the chances of a place that came up never is part of the slope in its count."""
    counts = Tensor([2.0, 0.0], requires_grad=True)
    d.Multinomial(2, logits=Tensor([1.0, 1.0])).log_prob(counts).backward()
    digamma = [1.5 - np.euler_gamma, 1.0 - np.euler_gamma, -np.euler_gamma]  # of 3, 2 and 1
    np.testing.assert_allclose(counts.grad.numpy(), [-np.log(2), digamma[0] - digamma[2] - np.log(2)], rtol=1e-5)
    chances = Tensor([0.25, 0.75], dtype="float64")
    for one in (d.Bernoulli(chances), d.OneHotCategorical(chances), d.Binomial(2, chances)):
        assert one.enumerate_support().dtype == chances.dtype


PATHS = {
    "normal": "Normal",
    "categorical": "Categorical",
    "kl": "kl_divergence",
    "one_hot_categorical": "OneHotCategorical",
    "multivariate_normal": "MultivariateNormal",
    "distribution": "Distribution",
    "constraints": "positive",
}


@pytest.mark.parametrize("path", PATHS)
def test_a_path_of_torchs_leads_there(path: str) -> None:
    assert getattr(import_module(f"anneal.distributions.{path}"), PATHS[path]) is not None
