"""Distributions under torch's names: samples, log-probabilities, entropies and divergences.

>>> from anneal.distributions import Normal, kl_divergence
>>> kl_divergence(Normal(0.0, 1.0), Normal(1.0, 1.0)).item()
0.5
"""

import sys

from anneal.distributions import constraints, transforms
from anneal.distributions._base import Distribution
from anneal.distributions._continuous import (
    Beta,
    Cauchy,
    Chi2,
    Exponential,
    Gamma,
    Gumbel,
    HalfCauchy,
    HalfNormal,
    Laplace,
    LogNormal,
    Normal,
    StudentT,
    Uniform,
)
from anneal.distributions._discrete import (
    Bernoulli,
    Binomial,
    Categorical,
    Geometric,
    Multinomial,
    NegativeBinomial,
    OneHotCategorical,
    OneHotCategoricalStraightThrough,
    Poisson,
)
from anneal.distributions._kl import kl_divergence, register_kl
from anneal.distributions._several import Dirichlet, Independent, MixtureSameFamily, MultivariateNormal
from anneal.distributions._tails import Pareto, Weibull
from anneal.distributions._transformed import TransformedDistribution
from anneal.distributions.transforms import (
    AbsTransform,
    AffineTransform,
    ComposeTransform,
    ExpTransform,
    IndependentTransform,
    PowerTransform,
    ReshapeTransform,
    SigmoidTransform,
    SoftmaxTransform,
    SoftplusTransform,
    TanhTransform,
    Transform,
    identity_transform,
)

__all__ = [
    "AbsTransform",
    "AffineTransform",
    "Bernoulli",
    "Beta",
    "Binomial",
    "Categorical",
    "Cauchy",
    "Chi2",
    "ComposeTransform",
    "Dirichlet",
    "Distribution",
    "ExpTransform",
    "Exponential",
    "Gamma",
    "Geometric",
    "Gumbel",
    "HalfCauchy",
    "HalfNormal",
    "Independent",
    "IndependentTransform",
    "Laplace",
    "LogNormal",
    "MixtureSameFamily",
    "Multinomial",
    "MultivariateNormal",
    "NegativeBinomial",
    "Normal",
    "OneHotCategorical",
    "OneHotCategoricalStraightThrough",
    "Pareto",
    "Poisson",
    "PowerTransform",
    "ReshapeTransform",
    "SigmoidTransform",
    "SoftmaxTransform",
    "SoftplusTransform",
    "StudentT",
    "TanhTransform",
    "Transform",
    "TransformedDistribution",
    "Uniform",
    "Weibull",
    "constraints",
    "identity_transform",
    "kl_divergence",
    "register_kl",
    "transforms",
]

# torch's files of this room
_FILES = (
    *("bernoulli", "beta", "binomial", "categorical", "cauchy", "chi2", "dirichlet", "distribution", "exponential"),
    *("gamma", "geometric", "gumbel", "half_cauchy", "half_normal", "independent", "kl", "laplace", "log_normal"),
    *(
        "mixture_same_family",
        "multinomial",
        "multivariate_normal",
        "negative_binomial",
        "normal",
        "one_hot_categorical",
    ),
    *("pareto", "poisson", "studentT", "transformed_distribution", "uniform", "weibull"),
)
sys.modules.update({f"{__name__}.{file}": sys.modules[__name__] for file in _FILES})


def __getattr__(name: str) -> object:
    if name in _FILES:
        return sys.modules[__name__]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
