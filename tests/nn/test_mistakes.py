"""Mistakes in the arguments of layers, optimisers, schedules, distributions and data: each is an error of anneal's own
that names whose argument is wrong, and what was given.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

import anneal as an
from anneal import distributions as dist, nn, optim
from anneal.errors import AnnealError, CompilerError, UserError
from anneal.optim import lr_scheduler as lr
from anneal.utils import data

NAMES: dict[str, Any] = {"an": an, "D": dist, "nn": nn, "F": nn.functional, "optim": optim, "lr": lr, "data": data}
# A call, `|`, and what its error says.
ROWS = """
optim.Adam(m) | Adam: params is a list of tensors, .* write model.parameters\\(\\)
optim.Adam(m.parameters(), betas=0.9) | Adam: betas is a list, or the like, not 0.9
optim.Adam(m.parameters(), betas=("a", 0.9)) | Adam: betas is two numbers
optim.SGD(lr=0.1) | SGD: missing .* 'params'
optim.SGD(m.parameters(), lr=0.1, decay=0.1) | SGD: there is no argument 'decay'
optim.RMSprop(m.parameters(), alpha="x") | RMSprop: alpha is a number, not 'x'
optim.Adafactor(m.parameters(), beta2_decay="x") | Adafactor: beta2_decay is a number
optim.LBFGS(m.parameters(), max_iter="x") | LBFGS: max_iter is a number
opt.step(3) | SGD: step takes a closure, or tensors, not 3
opt.load_state_dict(None) | load_state_dict: takes what state_dict\\(\\) gave, not None
opt.add_param_group({"params": 3}) | SGD: params is a list of tensors, not 3
nn.utils.clip_grad_norm_(m, 1.0) | clip_grad_norm_: .* model.parameters\\(\\), not 1.0 and Linear
nn.utils.clip_grad_norm_(m.parameters(), "1") | clip_grad_norm_: max_norm is a number, .* '1'
nn.utils.clip_grad_value_(m.parameters(), None) | clip_grad_value_: clip_value is a number, .* None
nn.utils.parameters_to_vector(m) | parameters_to_vector: parameters is a list, .* write model.parameters\\(\\)
lr.StepLR(opt) | StepLR: missing .* 'step_size'
lr.StepLR(opt, "a") | StepLR: step_size is a number, not 'a'
lr.StepLR(m, 3) | StepLR: optimizer is an optimiser, not Linear
lr.LambdaLR(m, abs) | LambdaLR: optimizer is an optimiser, not Linear
lr.LambdaLR(opt, 0.1) | LambdaLR: lr_lambda is a function, .* not 0.1
lr.LambdaLR(opt, [1]) | LambdaLR: lr_lambda is a function
lr.OneCycleLR(opt, "a", total_steps=3) | OneCycleLR: a number, .* not 'a'
lr.MultiStepLR(opt, "ab") | MultiStepLR: milestones is a list
lr.ReduceLROnPlateau(opt).step("a") | ReduceLROnPlateau: the metric is a number, not 'a'
lr.SequentialLR(opt, [lr.StepLR(opt, 1), 3], [1]) | SequentialLR: every schedule
lr.ChainedScheduler([lr.StepLR(opt, 1), 3]) | ChainedScheduler: takes schedules
lr.StepLR(opt, 1).load_state_dict([1]) | load_state_dict: takes what state_dict\\(\\) gave
nn.Sequential(nn.Linear) | Sequential: holds modules, not <class
nn.ModuleList([nn.ReLU]) | ModuleList: holds modules, not <class
nn.ModuleList(5) | ModuleList: modules is a list, or the like, not 5
nn.ModuleDict([nn.Linear(3, 2)]) | ModuleDict: takes a dict, or pairs
nn.ParameterDict(5) | ParameterDict: takes a dict, or pairs, not 5
nn.LSTM(3, 4)(an.ones(2, 5, 3), (an.ones(1, 5, 4),)) | LSTM: the state is a pair of tensors
nn.LSTM(3, 4)(an.ones(2, 5, 3), 3) | LSTM: the state is a pair of tensors, \\(h, c\\), not 3
nn.LSTMCell(3, 4)(an.ones(5, 3), [1, 2]) | LSTMCell: the state is a pair of tensors
nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2), "a") | TransformerEncoder: num_layers is an int, not 'a'
nn.TransformerEncoder(nn.TransformerEncoderLayer, 2) | TransformerEncoder: encoder_layer is a Module
nn.LazyBatchNorm1d()(an.ones(3)) | LazyBatchNorm1d: takes a tensor with channels along axis 1
nn.LazyLinear(3)("a") | LazyLinear: takes a tensor .* not 'a'
F.ctc_loss(an.ones(3), an.ones(2, dtype=an.int64), (3,), (2,)) | ctc_loss: log_probs is
F.lp_pool1d(an.ones(4, 4), 0.0, 2) | lp_pool1d: norm_type is not 0
data.DataLoader([1, 2], batch_size="a") | DataLoader: batch_size is an int, not 'a'
list(data.DataLoader([(1, 2), (1,)], batch_size=2)) | DataLoader: examples of one batch have the same parts
list(data.DataLoader([{"a": 1}, {"b": 1}], batch_size=2)) | DataLoader: examples of one batch have the same parts
data.TensorDataset(3) | TensorDataset: each of tensors is a tensor, not 3
data.TensorDataset(an.ones(())) | TensorDataset: tensors must have equally many rows
data.random_split([1, 2, 3], 2) | random_split: lengths is a list
data.ConcatDataset([]) | ConcatDataset: takes one data set or more
data.BatchSampler(3, 2, False) | BatchSampler: sampler is a list
D.Normal(0) | Normal: missing .* 'scale'
D.Normal(mean=0, std=1) | Normal: there is no argument 'mean'. It takes loc, scale
D.Independent(3, 1) | Independent: base_distribution is a Distribution, not 3
D.Independent(D.Normal(an.zeros(2), 1), "a") | Independent: reinterpreted_batch_ndims is an int
D.TransformedDistribution(D.Normal(0, 1), 3) | TransformedDistribution: transforms are Transforms
D.MixtureSameFamily(D.Normal(0, 1), D.Normal(0, 1)) | MixtureSameFamily: mixture_distribution is a Categorical
D.ComposeTransform(D.ExpTransform()) | ComposeTransform: parts is a list
D.AffineTransform(0, "a") | AffineTransform: loc and scale are numbers
D.CatTransform([]) | CatTransform: tseq is of Transforms
D.ReshapeTransform(3, 3) | ReshapeTransform: in_shape is a list
D.IndependentTransform(D.Normal(0, 1), 1) | IndependentTransform: base_transform is a Transform
D.CumulativeDistributionTransform(3) | CumulativeDistributionTransform: distribution is a Distribution
D.kl_divergence(D.Normal(0, 1), 3) | kl_divergence: q is a Distribution, not 3
D.register_kl(int, D.Normal) | register_kl: takes two classes of distributions
D.Multinomial(-1, an.ones(3)) | Multinomial: total_count is a number of draws
"""


@pytest.mark.parametrize("row", ROWS.strip().splitlines())
def test_a_mistake_is_named(row: str) -> None:
    call, _, words = row.rpartition(" | ")
    model = nn.Linear(3, 2)
    names = {**NAMES, "m": model, "opt": optim.SGD(model.parameters(), lr=0.1)}
    with pytest.raises(UserError, match=f"^{words}"):
        eval(call, names)


def test_what_torch_takes_is_taken() -> None:
    """Steps and epochs that are not whole, 1 for True, several kinds of rows of parameters."""
    model = nn.Linear(3, 2)
    opt = optim.SGD(model.named_parameters(), lr=1, nesterov=0)
    lr.CosineAnnealingLR(opt, T_max=2.5).step()
    lr.StepLR(opt, 2.0, gamma=an.tensor(0.5).item()).step()
    assert len(list(data.DataLoader([1, 2, 3], batch_size=2, drop_last=1))) == 1  # type: ignore[arg-type]
    assert list(data.BatchSampler((n for n in (1, 2)), 1, False)) == [[1], [2]]
    part, numbers = data.Subset("abcd", an.tensor([2, 0])), [3, 1]
    assert (part[0], len(part)) == ("c", 2)
    assert data.Subset("abcd", numbers).indices is numbers
    assert data.Subset({"a": 1}, ["a"])[0] == 1  # type: ignore[list-item]
    nn.ModuleList(nn.Linear(2, 2) for _ in range(2))
    nn.utils.clip_grad_norm_(model.weight, 1)


EXAMPLES = {"Llama", "Reader"}  # models of the examples: their configurations are their own


class _Given:
    """A value that no argument may be."""


WRONG = ("text", b"bytes", _Given(), {1, 2}, [[1], [2, 3]], (), float("nan"), 1 << 70, an.ones(2, 3), nn.ReLU, None)


@pytest.mark.parametrize("room", [optim, lr, dist, data, nn], ids=lambda room: room.__name__)
def test_one_wrong_argument_is_an_error_of_ours(room: Any) -> None:
    """The first argument of each class of a room, wrong in each way, is taken or refused in words of its own."""
    for name in getattr(room, "__all__", dir(room)):
        kind = getattr(room, name)
        if not isinstance(kind, type) or not kind.__module__.startswith("anneal.") or name in EXAMPLES:
            continue
        for wrong in WRONG:
            try:
                kind(wrong)
            except CompilerError:
                raise
            except AnnealError:
                pass
            except TypeError as e:  # of Python, where what is wrong is the number of arguments
                if not re.search(rf"\b{name}\b.*(takes no arguments|missing)", str(e)):
                    raise AssertionError(f"{name}({wrong!r}): {e}") from e
