"""Optimisers with torch's names, arguments and formulas; `lr_scheduler` has learning rates over time.

`step()` computes losses, gradients, parameters and moments at once.
"""

from typing import TYPE_CHECKING

from anneal.doors import opened_later, same_under
from anneal.optim._adam import SGD, Adam, AdamW, clip_grad_norm_, clip_grad_value_, get_total_norm
from anneal.optim._base import Optimizer, ParameterGroup

if TYPE_CHECKING:
    from anneal.optim import lr_scheduler, swa_utils

    from anneal.optim._formulas import (  # isort: skip
        ASGD, Adadelta, Adafactor, Adagrad, Adamax, Lion, Muon, NAdam, RAdam, RMSprop, Rprop, SparseAdam,
    )  # fmt: skip
    from anneal.optim._lbfgs import LBFGS, ZeroRedundancyOptimizer
else:  # imported when first asked for
    __getattr__ = same_under(
        __name__,
        "adadelta adafactor adagrad adam adamax adamw asgd lbfgs nadam optimizer radam rmsprop rprop sgd sparse_adam",
        opened_later(__name__),
    )


__all__ = [
    "ASGD", "LBFGS", "SGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Lion", "Muon", "NAdam",
    "Optimizer", "ParameterGroup", "RAdam", "RMSprop", "Rprop", "SparseAdam", "ZeroRedundancyOptimizer",
    "clip_grad_norm_", "clip_grad_value_", "get_total_norm", "lr_scheduler", "swa_utils",
]  # fmt: skip
