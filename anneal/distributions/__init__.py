"""Distributions under torch's names: samples, log-probabilities, entropies and divergences.

>>> from anneal.distributions import Normal, kl_divergence
>>> kl_divergence(Normal(0.0, 1.0), Normal(1.0, 1.0)).item()
0.5
"""

import sys

from anneal.distributions import _relaxed, constraints, transforms
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
from anneal.distributions._relaxed import RelaxedBernoulli, RelaxedOneHotCategorical
from anneal.distributions._several import (
    Dirichlet,
    Independent,
    LowRankMultivariateNormal,
    MixtureSameFamily,
    MultivariateNormal,
)
from anneal.distributions._tails import Pareto, Weibull
from anneal.distributions._transformed import LogNormal, TransformedDistribution
from anneal.distributions.constraint_registry import biject_to, transform_to
from anneal.distributions.transforms import (
    AbsTransform,
    AffineTransform,
    CatTransform,
    ComposeTransform,
    CorrCholeskyTransform,
    CumulativeDistributionTransform,
    ExpTransform,
    IndependentTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
    PowerTransform,
    ReshapeTransform,
    SigmoidTransform,
    SoftmaxTransform,
    SoftplusTransform,
    StackTransform,
    StickBreakingTransform,
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
    "CatTransform",
    "Categorical",
    "Cauchy",
    "Chi2",
    "ComposeTransform",
    "CorrCholeskyTransform",
    "CumulativeDistributionTransform",
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
    "LowRankMultivariateNormal",
    "LowerCholeskyTransform",
    "MixtureSameFamily",
    "Multinomial",
    "MultivariateNormal",
    "NegativeBinomial",
    "Normal",
    "OneHotCategorical",
    "OneHotCategoricalStraightThrough",
    "Pareto",
    "Poisson",
    "PositiveDefiniteTransform",
    "PowerTransform",
    "RelaxedBernoulli",
    "RelaxedOneHotCategorical",
    "ReshapeTransform",
    "SigmoidTransform",
    "SoftmaxTransform",
    "SoftplusTransform",
    "StackTransform",
    "StickBreakingTransform",
    "StudentT",
    "TanhTransform",
    "Transform",
    "TransformedDistribution",
    "Uniform",
    "Weibull",
    "biject_to",
    "constraints",
    "identity_transform",
    "kl_divergence",
    "register_kl",
    "transform_to",
    "transforms",
]

# torch's files of this room
_FILES = (
    *("bernoulli", "beta", "binomial", "categorical", "cauchy", "chi2", "dirichlet", "distribution", "exponential"),
    *("gamma", "geometric", "gumbel", "half_cauchy", "half_normal", "independent", "kl", "laplace", "log_normal"),
    "lowrank_multivariate_normal",
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
_PATHS = dict.fromkeys(_FILES, sys.modules[__name__])
_PATHS.update(relaxed_bernoulli=_relaxed, relaxed_categorical=_relaxed)
sys.modules.update({f"{__name__}.{file}": module for file, module in _PATHS.items()})


def __getattr__(name: str) -> object:
    if name in _PATHS:
        return _PATHS[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
