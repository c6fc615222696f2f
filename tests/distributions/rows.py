"""Distributions with parameters and values, for ours and torch's: `python -m tests.distributions.rows` writes
`torch.json`, what torch's give.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

TABLE = Path(__file__).with_name("torch.json")
P = [0.2, 0.5, 0.9]
REAL, POSITIVE, UNIT = [-1.5, 0.3, 4.0], [0.1, 1.0, 3.5], [0.05, 0.5, 0.99]
TRIL = [[[1.0, 0.0], [0.5, 2.0]]]
COV = [[1.0, 0.3], [0.3, 2.0]]
PRECISION = [[2.0, -0.5], [-0.5, 1.0]]
WEIGHTS = [[1.0, 2.0, 5.0], [0.0, 1.0, 1.0]]
# Class, arguments (lists become tensors), values.
Row = tuple[str, dict[str, Any], list[Any]]
ROWS: dict[str, Row] = {
    "Normal": ("Normal", {"loc": [0.0, 1.0, -2.0], "scale": [1.0, 0.5, 3.0]}, REAL),
    "Normal of numbers": ("Normal", {"loc": 0.5, "scale": 2.0}, REAL),
    "LogNormal": ("LogNormal", {"loc": [0.0, 1.0, -2.0], "scale": [1.0, 0.5, 0.3]}, POSITIVE),
    "Laplace": ("Laplace", {"loc": [0.0, 1.0, -2.0], "scale": [1.0, 0.5, 3.0]}, REAL),
    "Gumbel": ("Gumbel", {"loc": [0.0, 1.0, -2.0], "scale": [1.0, 0.5, 3.0]}, REAL),
    "Cauchy": ("Cauchy", {"loc": [0.0, 1.0, -2.0], "scale": [1.0, 0.5, 3.0]}, REAL),
    "StudentT": ("StudentT", {"df": [0.8, 1.5, 7.0], "loc": [0.0, 1.0, -2.0], "scale": [1.0, 0.5, 3.0]}, REAL),
    "HalfNormal": ("HalfNormal", {"scale": [1.0, 0.5, 3.0]}, POSITIVE),
    "HalfCauchy": ("HalfCauchy", {"scale": [1.0, 0.5, 3.0]}, POSITIVE),
    "Uniform": ("Uniform", {"low": [-2.0, 0.0, 3.0], "high": [-1.0, 1.0, 9.0]}, [-1.5, 0.3, 4.0]),
    "Exponential": ("Exponential", {"rate": [0.5, 1.0, 7.0]}, POSITIVE),
    "Gamma": ("Gamma", {"concentration": [0.5, 1.0, 7.0], "rate": [2.0, 1.0, 0.3]}, POSITIVE),
    "Chi2": ("Chi2", {"df": [0.5, 2.0, 7.0]}, POSITIVE),
    "Beta": ("Beta", {"concentration1": [0.5, 2.0, 7.0], "concentration0": [0.4, 1.0, 3.0]}, UNIT),
    "Weibull": ("Weibull", {"scale": [0.5, 2.0, 7.0], "concentration": [0.7, 1.0, 3.0]}, POSITIVE),
    "Pareto": ("Pareto", {"scale": [0.05, 1.0, 2.0], "alpha": [0.7, 1.5, 3.0]}, [0.1, 1.5, 3.5]),
    "Bernoulli": ("Bernoulli", {"probs": P}, [0.0, 1.0, 1.0]),
    "Bernoulli, sure": ("Bernoulli", {"probs": [0.0, 1.0, 1.0]}, [0.0, 0.0, 1.0]),
    "Bernoulli of logits": ("Bernoulli", {"logits": [-2.0, 0.0, 30.0]}, [0.0, 1.0, 1.0]),
    "Geometric": ("Geometric", {"probs": P}, [0.0, 2.0, 5.0]),
    "Geometric of logits": ("Geometric", {"logits": [-2.0, 0.0, 3.0]}, [0.0, 2.0, 5.0]),
    "Poisson": ("Poisson", {"rate": [0.5, 4.0, 30.0]}, [0.0, 2.0, 25.0]),
    "Binomial": ("Binomial", {"total_count": 5, "probs": P}, [0.0, 2.0, 5.0]),
    "Binomial of logits": ("Binomial", {"total_count": 5, "logits": [-2.0, 0.0, 3.0]}, [0.0, 2.0, 5.0]),
    "NegativeBinomial": ("NegativeBinomial", {"total_count": [1.0, 3.0, 2.5], "probs": P}, [0.0, 2.0, 5.0]),
    "Categorical": ("Categorical", {"probs": WEIGHTS}, [0.0, 2.0]),
    "Categorical of logits": ("Categorical", {"logits": [[1.0, 2.0, -5.0], [0.0, 1.0, 1.0]]}, [0.0, 2.0]),
    "OneHotCategorical": ("OneHotCategorical", {"probs": WEIGHTS}, [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
    "Multinomial": ("Multinomial", {"total_count": 4, "probs": WEIGHTS}, [[1.0, 1.0, 2.0], [0.0, 1.0, 3.0]]),
    "Dirichlet": ("Dirichlet", {"concentration": [[1.5, 2.0, 5.0], [0.5, 0.5, 0.9]]}, [[0.2, 0.3, 0.5]]),
    "MultivariateNormal": (
        "MultivariateNormal",
        {"loc": [0.0, 1.0], "covariance_matrix": COV},
        [[0.5, -1.0], [0.0, 2.0]],
    ),
    "MultivariateNormal, batch": ("MultivariateNormal", {"loc": [0.0, 1.0], "scale_tril": TRIL}, [[0.5, -1.0]]),
    "LowRankMultivariateNormal": (
        "LowRankMultivariateNormal",
        {
            "loc": [0.0, 1.0, 2.0],
            "cov_factor": [[1.0, 0.2], [0.5, -1.0], [0.2, 0.0]],
            "cov_diag": [[0.3, 1.0, 2.0]] * 2,
        },
        [[0.5, -1.0, 2.5]],
    ),
    "MultivariateNormal, precision": (
        "MultivariateNormal",
        {"loc": [0.0, 1.0], "precision_matrix": PRECISION},
        [[0.5, -1.0]],
    ),
}
# Of no known moments.
RELAXED: dict[str, Row] = {
    "RelaxedBernoulli": ("RelaxedBernoulli", {"temperature": [0.7], "probs": [0.3, 0.5, 0.9]}, [0.4, 0.01, 0.8]),
    "RelaxedBernoulli of logits": ("RelaxedBernoulli", {"temperature": [2.0], "logits": [-1.0, 3.0]}, [0.4, 0.01]),
    "RelaxedOneHotCategorical": (
        "RelaxedOneHotCategorical",
        {"temperature": [0.7], "probs": [[0.2, 0.3, 0.5]]},
        [[0.2, 0.5, 0.3], [0.9, 0.05, 0.05]],
    ),
}
PAIRS = {
    "Normal": {"loc": [0.5, 0.0, 1.0], "scale": [2.0, 1.0, 1.0]},
    "LogNormal": {"loc": [0.5, 0.0, 1.0], "scale": [2.0, 1.0, 1.0]},
    "Laplace": {"loc": [0.5, 0.0, 1.0], "scale": [2.0, 1.0, 1.0]},
    "Gumbel": {"loc": [0.5, 0.0, 1.0], "scale": [2.0, 1.0, 1.0]},
    "Cauchy": {"loc": [0.5, 0.0, 1.0], "scale": [2.0, 1.0, 1.0]},
    "HalfNormal": {"scale": [2.0, 1.0, 0.5]},
    "Uniform": {"low": [-3.0, 0.0, 4.0], "high": [0.0, 2.0, 10.0]},
    "Exponential": {"rate": [2.0, 1.0, 0.5]},
    "Gamma": {"concentration": [2.0, 1.0, 0.5], "rate": [1.0, 2.0, 3.0]},
    "Beta": {"concentration1": [2.0, 1.0, 0.5], "concentration0": [1.0, 2.0, 3.0]},
    "Pareto": {"scale": [0.01, 2.0, 1.0], "alpha": [1.0, 2.0, 3.0]},
    "Bernoulli": {"probs": [0.3, 0.5, 0.1]},
    "Geometric": {"probs": [0.3, 0.5, 0.1]},
    "Poisson": {"rate": [1.0, 2.0, 3.0]},
    "Binomial": {"total_count": 5, "probs": [0.3, 0.5, 0.1]},
    "Categorical": {"probs": [[1.0, 1.0, 2.0], [1.0, 1.0, 5.0]]},
    "OneHotCategorical": {"probs": [[1.0, 1.0, 2.0], [1.0, 1.0, 5.0]]},
    "Dirichlet": {"concentration": [[1.0, 1.0, 2.0], [2.0, 3.0, 0.5]]},
    "MultivariateNormal": {"loc": [1.0, 1.0], "covariance_matrix": [[2.0, 0.0], [0.0, 1.0]]},
}
WRONG: dict[str, Row] = {
    "a negative scale": ("Normal", {"loc": 0.0, "scale": -1.0}, []),
    "a scale that is no number": ("Normal", {"loc": 0.0, "scale": [1.0, float("nan")]}, []),
    "above one": ("Bernoulli", {"probs": 1.5}, []),
    "negative weights": ("Categorical", {"probs": [-1.0, 2.0]}, []),
    "low above high": ("Uniform", {"low": 1.0, "high": 0.0}, []),
    "no covariance": ("MultivariateNormal", {"loc": [0.0, 0.0], "covariance_matrix": [[1.0, 2.0], [2.0, 1.0]]}, []),
    "a value outside": ("Uniform", {"low": 0.0, "high": 1.0}, [2.0]),
    "half a success": ("Bernoulli", {"probs": 0.5}, [0.5]),
    "no such place": ("Categorical", {"probs": [1.0, 2.0]}, [2.0]),
    "a negative time": ("Exponential", {"rate": 1.0}, [-1.0]),
    "no shares": ("Dirichlet", {"concentration": [1.0, 2.0]}, [[0.5, 0.6]]),
    "fewer than all": ("Multinomial", {"total_count": 4, "probs": [0.2, 0.8]}, [[1.0, 1.0]]),
    "more than all": ("Multinomial", {"total_count": 4, "probs": [0.2, 0.8]}, [[4.0, 1.0]]),
    "relaxed, no shares": ("RelaxedOneHotCategorical", {"temperature": [0.7], "probs": [0.2, 0.8]}, [0.5, 0.6]),
    "relaxed, above one": ("RelaxedBernoulli", {"temperature": [0.7], "probs": [0.2]}, [1.5]),
    "right": ("Normal", {"loc": 0.0, "scale": 1.0}, [2.0]),
}


def made(m: Any, kind: str, given: dict[str, Any], wants: bool = False) -> Any:
    def tensor(v: Any) -> Any:
        return m.tensor(v, requires_grad=wants) if isinstance(v, list) else v

    return getattr(m.distributions, kind)(**{name: tensor(v) for name, v in given.items()})


def numbers(x: Any) -> Any:
    return np.vectorize(lambda v: float(f"{v:.7g}"), otypes=[float])(x.detach().numpy()).tolist()


def known(call: Callable[[], Any]) -> Any:
    """The numbers of a call; None where the distribution has no such thing."""
    try:
        return numbers(call())
    except NotImplementedError:
        return None


def facts(m: Any, row: Row) -> dict[str, Any]:
    kind, given, values = row
    d, x = made(m, kind, given), m.tensor(values)
    out: dict[str, Any] = {"shapes": [list(d.batch_shape), list(d.event_shape)]}
    for name in ("mean", "variance", "stddev", "mode"):
        out[name] = known(lambda name=name: getattr(d, name))  # type: ignore[misc]
    out["entropy"], out["log_prob"] = known(d.entropy), known(lambda: d.log_prob(x))
    out["cdf"], out["icdf"] = known(lambda: d.cdf(x)), known(lambda: d.icdf(m.tensor([0.1, 0.5, 0.9])))
    shape = (2, *d.batch_shape) if d.batch_shape or d.event_shape else (2, 3)
    out["expanded"] = known(lambda: d.expand(shape).log_prob(x))
    out["every"] = known(d.enumerate_support) if d.has_enumerate_support else None
    if kind not in ("Multinomial",):
        parameters = {name: m.tensor(v, requires_grad=True) for name, v in given.items() if isinstance(v, list)}
        if parameters:
            fresh = getattr(m.distributions, kind)(**{**given, **parameters})
            fresh.log_prob(x).sum().backward()
            out["gradients"] = [numbers(p.grad) for p in parameters.values()]
    return out


def divergence(m: Any, kind: str) -> Any:
    p, q = made(m, kind, ROWS[kind][1]), made(m, kind, PAIRS[kind])
    return numbers(m.distributions.kl_divergence(p, q))


def others(m: Any) -> dict[str, Any]:
    d = m.distributions
    whole = d.Independent(d.Normal(m.zeros(2, 3), m.ones(3)), 1)
    mixture = d.MixtureSameFamily(
        d.Categorical(m.tensor([1.0, 3.0])), d.Normal(m.tensor([-1.0, 2.0]), m.tensor([1.0, 0.5]))
    )
    several = d.MixtureSameFamily(
        d.Categorical(m.tensor([1.0, 3.0])), d.Independent(d.Normal(m.tensor([[-1.0, 0.0], [2.0, 1.0]]), 1.0), 1)
    )
    x = m.tensor([0.3, -2.0, 1.5])
    return {
        "independent": [numbers(whole.log_prob(x)), numbers(whole.entropy()), list(whole.expand((4, 2)).batch_shape)],
        "divergence": numbers(d.kl_divergence(whole, d.Independent(d.Normal(m.ones(2, 3), 2.0), 1))),
        "mixture": [numbers(v) for v in (mixture.log_prob(x), mixture.cdf(x), mixture.mean, mixture.variance)],
        "vectors": [numbers(v) for v in (several.log_prob(m.tensor([0.5, 0.5])), several.mean, several.variance)],
    }


def transformed(m: Any) -> dict[str, Any]:
    d, t = m.distributions, m.distributions.transforms
    base = d.Normal(m.tensor([0.2, -1.0]), m.tensor([1.0, 0.5]))
    x = m.tensor([0.3, 0.8])
    scale = m.tensor([2.0, -0.5])
    made = {
        "tanh": ([t.TanhTransform()], x),
        "sigmoid": ([t.AffineTransform(0.5, 2.0), t.SigmoidTransform()], x),
        "exp": (t.ExpTransform(), x),
        "affine": ([t.AffineTransform(m.tensor([1.0, 2.0]), scale)], x),
        "affine of events": ([t.AffineTransform(1.0, scale, event_dim=1), t.ExpTransform()], x),
        "wider": ([t.AffineTransform(m.zeros(3, 1), 2.0)], x),
        "softplus": ([t.SoftplusTransform()], x),
        "inverse": ([t.ExpTransform(), t.TanhTransform().inv.inv, t.PowerTransform(2.0)], x),
        "compose": (t.ComposeTransform([t.SigmoidTransform(), t.PowerTransform(m.tensor([0.5, 2.0]))]), x),
        "reshape": ([t.ReshapeTransform((2,), (2, 1)), t.ExpTransform()], m.tensor([[0.3], [0.8]])),
        "independent": ([t.IndependentTransform(t.ExpTransform(), 1)], x),
        "nothing": ([], x),
    }
    out: dict[str, Any] = {}
    for name, (transforms, value) in made.items():
        whole = d.TransformedDistribution(base, transforms)
        found = [list(whole.batch_shape), list(whole.event_shape), numbers(whole.log_prob(value))]
        if not whole.event_shape:
            p = m.tensor([0.1, 0.7])
            found += [numbers(whole.cdf(value)), numbers(whole.icdf(p))]
        found += [list(whole.sample((4,)).shape), list(whole.expand((5, *whole.batch_shape)).rsample().shape)]
        out[name] = found
    exp, more = t.ExpTransform(), d.Normal(0.0, 2.0)
    whole = d.TransformedDistribution(d.Independent(base, 1), [exp])
    out["vectors"] = [numbers(whole.log_prob(x)), list(whole.event_shape)]
    a, b = d.TransformedDistribution(base, [exp]), d.TransformedDistribution(more, [t.ExpTransform()])
    out["divergence"] = numbers(d.kl_divergence(a, b))
    out["equal"] = [t.AffineTransform(1.0, 2.0) == t.AffineTransform(1.0, 2.0), exp == t.TanhTransform(), exp == exp]
    out["constraints"] = [d.constraints.independent(d.constraints.positive, 1).check(x).tolist(), exp.inv(x).tolist()]
    return out


def maps(m: Any) -> dict[str, Any]:
    """Both registries, and transforms that none of them gives."""
    d, c, t = m.distributions, m.distributions.constraints, m.distributions.transforms
    row, square = [0.3, -1.2, 0.8], [[0.5, 9.0, 9.0], [-1.0, 0.2, 9.0], [2.0, 0.3, -0.4]]
    six = [[0.3, -1.2, 0.8, 0.1, 2.0, -0.5], [0.0, 9.0, -20.0, 1.0, 0.5, 0.4]]
    sets = {
        "real": (c.real, row),
        "positive": (c.positive, row),
        "not below": (c.greater_than_eq(m.tensor([1.0, 2.0, 3.0])), row),
        "below": (c.less_than(2.0), row),
        "unit": (c.unit_interval, row),
        "between": (c.half_open_interval(-1.0, 3.0), row),
        "between tensors": (c.interval(m.tensor([-1.0, 0.0, 1.0]), m.tensor(4.0)), row),
        "shares": (c.simplex, six),
        "vectors": (c.independent(c.unit_interval, 1), six),
        "lower": (c.lower_cholesky, square),
        "definite": (c.positive_definite, [square, square]),
        "correlations": (c.corr_cholesky, six),
        "one correlation": (c.corr_cholesky, [0.4]),
        "cat": (c.cat([c.positive, c.real, c.interval(0.0, 2.0)], -1, [3, 1, 2]), six),
        "cat of vectors": (c.cat([c.independent(c.positive, 1), c.real_vector], -1, [4, 2]), six),
        "cat of rows": (c.cat([c.positive, c.real], 0), six),
        "stack": (c.stack([c.positive, c.unit_interval], 0), six),
        "parameter": (d.Normal.arg_constraints["scale"], row),
        "support": (d.Independent(d.LogNormal(m.zeros(2, 3), 1.0), 1).support, row),
        "none": (c.boolean, row),
    }
    made = {}
    for registry in ("biject_to", "transform_to"):
        for name, (of, x) in sets.items():
            try:
                made[f"{registry} {name}"] = (getattr(d, registry)(of), x, of)
            except NotImplementedError:
                made[f"{registry} {name}"] = (None, x, of)
    cdf = t.CumulativeDistributionTransform(d.Normal(0.5, 2.0))
    made["cdf"] = (cdf, row, c.unit_interval)
    whole = t.CatTransform([t.ExpTransform(), t.StackTransform([cdf, t.identity_transform], -1)], -1, [4, 2])
    made["within"] = (whole, six, c.real)
    out: dict[str, Any] = {}
    for name, (transform, given, of) in made.items():
        if transform is None:
            out[name] = None
            continue
        x = m.tensor(given, requires_grad=True)
        y = transform(x)
        (y * y).sum().backward()
        found: list[Any] = [numbers(y), numbers(transform.inv(y)), numbers(x.grad), bool(of.check(y).all().item())]
        found += [list(transform.forward_shape(tuple(x.shape))), list(transform.inverse_shape(tuple(y.shape)))]
        found += [transform.domain.event_dim, transform.codomain.event_dim]
        if transform.bijective:
            found.append(numbers(transform.log_abs_det_jacobian(x, y)))
        out[name] = found
    return out


def refused(m: Any, row: Row) -> bool:
    kind, given, values = row
    try:
        d = made(m, kind, given)
        if values:
            d.log_prob(m.tensor(values))
    except ValueError:
        return True
    return False


if __name__ == "__main__":
    import torch
    import torch.distributions

    table = {
        "torch": torch.__version__,
        "facts": {name: facts(torch, row) for name, row in {**ROWS, **RELAXED}.items()},
        "divergences": {kind: divergence(torch, kind) for kind in PAIRS},
        "others": others(torch),
        "transformed": transformed(torch),
        "maps": maps(torch),
        "refused": {name: refused(torch, row) for name, row in WRONG.items()},
    }
    TABLE.write_text(json.dumps(table).replace('}, "', '},\n"') + "\n")
