"""Distributions under torch's names: samples, log-probabilities, entropies and divergences.

>>> from anneal.distributions import Normal, kl_divergence
>>> kl_divergence(Normal(0.0, 1.0), Normal(1.0, 1.0)).item()
0.5
"""

import sys

from anneal.distributions import _continuous, _discrete, _several, _transformed, constraints, transforms
from anneal.distributions._base import Distribution
from anneal.distributions._continuous import *
from anneal.distributions._discrete import *
from anneal.distributions._several import *
from anneal.distributions._transformed import *
from anneal.distributions.constraint_registry import biject_to, transform_to
from anneal.distributions.transforms import *

__all__ = [
    *_continuous.__all__,
    *_discrete.__all__,
    *_several.__all__,
    *_transformed.__all__,
    *transforms.__all__,
    "Distribution",
    "biject_to",
    "constraints",
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
_PATHS.update(relaxed_bernoulli=_transformed, relaxed_categorical=_transformed)
sys.modules.update({f"{__name__}.{file}": module for file, module in _PATHS.items()})


def __getattr__(name: str) -> object:
    if name in _PATHS:
        return _PATHS[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
