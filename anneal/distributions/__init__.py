"""Distributions under torch's names: samples, log-probabilities, entropies and divergences.

>>> from anneal.distributions import Normal, kl_divergence
>>> kl_divergence(Normal(0.0, 1.0), Normal(1.0, 1.0)).item()
0.5
"""

from typing import TYPE_CHECKING

from anneal.distributions import _continuous, _discrete, _several, constraints, transforms
from anneal.distributions._base import Distribution
from anneal.distributions._continuous import *
from anneal.distributions._discrete import *
from anneal.distributions._several import *
from anneal.distributions.transforms import *
from anneal.doors import same_under

__all__ = [
    *_continuous.__all__,
    *_discrete.__all__,
    *_several.__all__,
    *transforms.__all__,
    "Distribution",
    "constraints",
    "transforms",
]

if not TYPE_CHECKING:
    __getattr__ = same_under(
        __name__,
        "bernoulli beta binomial categorical cauchy chi2 dirichlet distribution exponential gamma geometric gumbel "
        "half_cauchy half_normal independent kl laplace log_normal lowrank_multivariate_normal mixture_same_family "
        "multinomial multivariate_normal negative_binomial normal one_hot_categorical pareto poisson studentT "
        "transformed_distribution uniform weibull",
        constraint_registry=transforms,
        relaxed_bernoulli=_several,
        relaxed_categorical=_several,
    )
