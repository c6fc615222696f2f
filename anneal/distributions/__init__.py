"""Distributions under torch's names: samples, log-probabilities, entropies and divergences.

>>> from anneal.distributions import Normal, kl_divergence
>>> kl_divergence(Normal(0.0, 1.0), Normal(1.0, 1.0)).item()
0.5
"""

from typing import TYPE_CHECKING

from anneal.distributions import _several, transforms as transforms
from anneal.doors import names_of, opened_later, same_under

if TYPE_CHECKING:
    from anneal.distributions import constraints as constraints
    from anneal.distributions._base import Distribution as Distribution
    from anneal.distributions._continuous import *
    from anneal.distributions._discrete import *
    from anneal.distributions._several import *
    from anneal.distributions.transforms import *
else:
    __all__ = [*names_of(__name__), "transforms"]
    __getattr__ = same_under(
        __name__,
        "bernoulli beta binomial categorical cauchy chi2 dirichlet distribution exponential gamma geometric gumbel "
        "half_cauchy half_normal independent kl laplace log_normal lowrank_multivariate_normal mixture_same_family "
        "multinomial multivariate_normal negative_binomial normal one_hot_categorical pareto poisson studentT "
        "transformed_distribution uniform weibull",
        opened_later(__name__),
        constraint_registry=transforms,
        relaxed_bernoulli=_several,
        relaxed_categorical=_several,
    )
