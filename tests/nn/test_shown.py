"""Printed modules as torch prints them, and the paths that torch's files have.

`python -m tests.nn.test_shown` writes `shown.json`, where torch is.
"""

from __future__ import annotations

import importlib
import json
import warnings
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest

import anneal
from anneal.errors import DataError

TABLE = Path(__file__).with_name("shown.json")

# A module and the names that programs take from it.
PATHS = """
nn.modules.activation ReLU; nn.modules.conv Conv2d; nn.modules.module Module; nn.modules.utils _pair
nn.modules.batchnorm BatchNorm2d; nn.modules.loss CrossEntropyLoss; nn.modules.rnn LSTM; nn.modules.linear Linear
nn.parameter Parameter; nn.init xavier_uniform_; nn.functional relu
nn.utils.rnn pad_sequence; nn.utils.clip_grad clip_grad_norm_ clip_grad_value_; nn.utils.prune l1_unstructured
nn.utils.convert_parameters parameters_to_vector vector_to_parameters; nn.utils.fusion fuse_conv_bn_eval
nn.utils.parametrize register_parametrization; nn.utils.parametrizations weight_norm spectral_norm
nn.utils.weight_norm weight_norm remove_weight_norm; nn.utils.spectral_norm spectral_norm; nn.utils.init skip_init
optim.optimizer Optimizer; optim.lr_scheduler LambdaLR; optim.swa_utils AveragedModel; optim.adadelta Adadelta
optim.adagrad Adagrad; optim.adam Adam; optim.adamax Adamax; optim.adamw AdamW; optim.asgd ASGD; optim.lbfgs LBFGS
optim.nadam NAdam; optim.radam RAdam; optim.rmsprop RMSprop; optim.rprop Rprop; optim.sgd SGD
optim.sparse_adam SparseAdam
autograd.function Function; autograd.functional jacobian; autograd.gradcheck gradcheck
autograd.grad_mode no_grad enable_grad set_grad_enabled inference_mode; autograd.variable Variable
autograd.anomaly_mode detect_anomaly set_detect_anomaly
utils.data.dataset Dataset random_split; utils.data.dataloader DataLoader; utils.data.sampler Sampler
utils.checkpoint checkpoint; amp.grad_scaler GradScaler; amp.autocast_mode autocast
cuda.amp.grad_scaler GradScaler; cuda.amp.autocast_mode autocast; func functional_call
distributions.normal Normal; distributions.categorical Categorical; distributions.kl kl_divergence
"""
ROWS = """
nn.Linear(3, 4)
nn.Linear(3, 4, bias=False)
nn.Bilinear(2, 3, 4)
nn.Conv1d(1, 2, 3)
nn.Conv2d(2, 4, 3, padding=1, stride=2, dilation=2, groups=2, bias=False, padding_mode='reflect')
nn.Conv2d(2, 4, (3, 2), padding='same')
nn.Conv3d(2, 4, 3)
nn.ConvTranspose1d(1, 2, 3)
nn.ConvTranspose2d(2, 4, 3, output_padding=1, stride=2)
nn.ConvTranspose3d(2, 4, 3)
nn.BatchNorm1d(3)
nn.BatchNorm2d(3, eps=0.001, momentum=None, affine=False, track_running_stats=False)
nn.BatchNorm3d(3)
nn.InstanceNorm1d(3)
nn.InstanceNorm2d(3, affine=True)
nn.SyncBatchNorm(3)
nn.LayerNorm(3)
nn.LayerNorm((3, 4), elementwise_affine=False)
nn.LayerNorm((3, 4), bias=False)
nn.RMSNorm(3)
nn.RMSNorm((3,), eps=1e-6)
nn.GroupNorm(2, 4)
nn.LocalResponseNorm(2)
nn.Embedding(3, 4)
nn.Embedding(3, 4, padding_idx=0, max_norm=1.0, norm_type=1.0, scale_grad_by_freq=True)
nn.EmbeddingBag(3, 4, mode='sum', padding_idx=1)
nn.Hardswish(inplace=True)
nn.Hardsigmoid(inplace=True)
nn.UpsamplingBilinear2d(scale_factor=2)
nn.UpsamplingNearest2d(scale_factor=(2, 3))
nn.TripletMarginWithDistanceLoss()
nn.AdaptiveLogSoftmaxWithLoss(5, 10, [3, 5, 8])
nn.LazyLinear(3)
nn.LazyConv2d(3, 2)
nn.LazyConvTranspose1d(4, 2, groups=2)
nn.LazyBatchNorm1d()
nn.RNN(3, 4)
nn.RNN(3, 4, 2, nonlinearity='relu', bias=False, batch_first=True, dropout=0.5, bidirectional=True)
nn.LSTM(3, 4)
nn.GRU(3, 4, num_layers=2)
nn.RNNCell(3, 4)
nn.RNNCell(3, 4, bias=False, nonlinearity='relu')
nn.LSTMCell(3, 4)
nn.GRUCell(3, 4)
nn.Dropout()
nn.Dropout(0.2, inplace=True)
nn.Dropout1d()
nn.Dropout2d(0.3)
nn.Dropout3d()
nn.AlphaDropout()
nn.FeatureAlphaDropout()
nn.ReLU()
nn.ReLU(inplace=True)
nn.ReLU6()
nn.LeakyReLU()
nn.LeakyReLU(0.2, True)
nn.PReLU()
nn.PReLU(3, 0.1)
nn.RReLU()
nn.ELU()
nn.ELU(inplace=True)
nn.CELU()
nn.SELU()
nn.GELU()
nn.GELU('tanh')
nn.GLU()
nn.Sigmoid()
nn.LogSigmoid()
nn.Hardsigmoid()
nn.Hardswish()
nn.Hardtanh()
nn.Hardtanh(-2.0, 2.0, inplace=True)
nn.Hardshrink()
nn.Softshrink()
nn.Softplus()
nn.Softsign()
nn.Tanh()
nn.Tanhshrink()
nn.Threshold(0.1, 20)
nn.Threshold(0.1, 20, inplace=True)
nn.Mish()
nn.SiLU()
nn.SiLU(inplace=True)
nn.Softmax(dim=1)
nn.Softmax()
nn.Softmax2d()
nn.Softmin(dim=1)
nn.LogSoftmax(dim=-1)
nn.MaxPool1d(2)
nn.MaxPool2d(2)
nn.MaxPool2d((3, 2), stride=(2, 1), padding=1, dilation=1, ceil_mode=True, return_indices=True)
nn.MaxPool3d(2)
nn.AvgPool1d(2)
nn.AvgPool2d(2, padding=1)
nn.AvgPool2d((2, 3))
nn.AvgPool3d(2)
nn.AdaptiveAvgPool1d(1)
nn.AdaptiveAvgPool2d((1, None))
nn.AdaptiveAvgPool2d(1)
nn.AdaptiveAvgPool3d(1)
nn.AdaptiveMaxPool1d(1)
nn.AdaptiveMaxPool2d(1)
nn.AdaptiveMaxPool3d((1, 2, 3))
nn.FractionalMaxPool2d(3, output_size=2)
nn.LPPool1d(2, 3)
nn.LPPool2d(2, 3, stride=2, ceil_mode=True)
nn.MaxUnpool1d(2)
nn.MaxUnpool2d(2)
nn.Flatten()
nn.Flatten(0, 1)
nn.Unflatten(1, (2, 3))
nn.Unfold(3)
nn.Fold((4, 5), 2)
nn.Upsample(size=(3, 4), mode='bilinear', align_corners=True)
nn.UpsamplingBilinear2d(size=(2, 3))
nn.PixelShuffle(2)
nn.PixelUnshuffle(2)
nn.ChannelShuffle(2)
nn.ZeroPad1d(1)
nn.ZeroPad2d(1)
nn.ZeroPad2d((1, 2, 3, 4))
nn.ZeroPad3d(1)
nn.ConstantPad1d(2, 3.5)
nn.ConstantPad2d(2, 3)
nn.ReflectionPad1d(2)
nn.ReflectionPad2d(2)
nn.ReplicationPad1d(2)
nn.ReplicationPad3d(2)
nn.CircularPad2d(2)
nn.Identity()
nn.Identity(3, a=4)
nn.CosineSimilarity()
nn.PairwiseDistance()
nn.MSELoss()
nn.L1Loss()
nn.CrossEntropyLoss()
nn.CrossEntropyLoss(weight=torch.ones(2))
nn.NLLLoss()
nn.NLLLoss(weight=torch.ones(2))
nn.BCELoss()
nn.BCEWithLogitsLoss()
nn.BCEWithLogitsLoss(pos_weight=torch.ones(2))
nn.KLDivLoss()
nn.SmoothL1Loss()
nn.HuberLoss()
nn.CTCLoss()
nn.TripletMarginLoss()
nn.CosineEmbeddingLoss()
nn.MarginRankingLoss()
nn.PoissonNLLLoss()
nn.GaussianNLLLoss()
nn.HingeEmbeddingLoss()
nn.SoftMarginLoss()
nn.MultiMarginLoss()
nn.MultiLabelMarginLoss()
nn.MultiLabelSoftMarginLoss()
nn.MultiheadAttention(4, 2)
nn.MultiheadAttention(4, 2, kdim=3, vdim=5, add_bias_kv=True, batch_first=True)
nn.TransformerEncoderLayer(4, 2, 8)
nn.TransformerEncoderLayer(4, 2, 8, activation='gelu', batch_first=True, norm_first=True)
nn.TransformerDecoderLayer(4, 2, 8)
nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8), 2, enable_nested_tensor=False)
nn.Transformer(4, 2, 1, 1, 8)
nn.Sequential()
nn.Sequential(nn.Linear(1, 2), nn.ReLU())
nn.Sequential(OrderedDict([('a', nn.Linear(1, 2)), ('b', nn.Sequential(nn.Tanh()))]))
nn.ModuleList()
nn.ModuleList([nn.Linear(1, 2) for _ in range(3)])
nn.ModuleList([nn.Linear(1, 2), nn.Linear(1, 2), nn.ReLU(), nn.Linear(1, 2)])
nn.ModuleList([nn.Sequential(nn.Linear(1, 2)) for _ in range(3)])
nn.ModuleDict()
nn.ModuleDict({'a': nn.Linear(1, 2), 'b': nn.ReLU()})
nn.ModuleDict({'a': nn.ModuleList([nn.Linear(1, 2)])})
P.register_parametrization(nn.Linear(3, 4), 'weight', nn.Identity())
P.register_parametrization(P.register_parametrization(nn.Linear(3, 4), 'weight', nn.Identity()), 'bias', nn.Tanh())
PZ.weight_norm(nn.Linear(3, 4))
nn.utils.weight_norm(nn.Linear(3, 4))
nn.utils.spectral_norm(nn.Linear(3, 4))
nn.Linear(3, 4).load_state_dict(nn.Linear(3, 4).state_dict())
""".strip().splitlines()


def shown(package: Any) -> dict[str, str]:
    within = {"torch": package, "nn": package.nn, "OrderedDict": OrderedDict}
    name = package.__name__
    within["P"] = importlib.import_module(f"{name}.nn.utils.parametrize")
    within["PZ"] = importlib.import_module(f"{name}.nn.utils.parametrizations")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {row: repr(eval(row, within)) for row in ROWS}  # the rows above


def test_modules_are_printed_as_torch_prints_them() -> None:
    wanted, found = json.loads(TABLE.read_text())["rows"], shown(anneal)
    assert {row: (found[row], text) for row, text in wanted.items() if found[row] != text} == {}


@pytest.mark.parametrize("line", [p.strip() for p in PATHS.replace("\n", ";").split(";") if p.strip()])
def test_names_are_found_under_torchs_paths(line: str) -> None:
    path, *names = line.split()
    module = importlib.import_module(f"anneal.{path}")
    assert [n for n in names if not hasattr(module, n)] == []


def test_a_module_on_meta_has_shapes_and_no_values() -> None:
    nn = anneal.nn
    models = [nn.Sequential(nn.Linear(2, 3), nn.Tanh()) for _ in range(2)]
    params, buffers = anneal.func.stack_module_state(models)
    base = nn.Sequential(nn.Linear(2, 3), nn.Tanh()).to("meta")
    x = anneal.ones(4, 2)
    each = anneal.func.vmap(lambda p, b: anneal.func.functional_call(base, (p, b), (x,)))(params, buffers)
    assert anneal.allclose(each, anneal.stack([m(x) for m in models]))
    assert (base[0].weight.shape, base(x).shape) == ((3, 2), (4, 3))
    with pytest.raises(DataError, match=r"0\.weight.*meta"):
        base(x).tolist()


@pytest.mark.parametrize("training", [True, False])
def test_running_statistics_of_stacked_models_are_the_stacked_ones(training: bool) -> None:
    nn, func = anneal.nn, anneal.func
    models = [nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).train(training) for _ in range(2)]
    params, buffers = func.stack_module_state(models)
    base = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).train(training).to("meta")
    x = anneal.tensor([[1.0, 2.0], [3.0, 5.0], [4.0, 4.0]])
    each = func.vmap(lambda p, b: func.functional_call(base, (p, b), (x,)))(params, buffers)
    assert anneal.allclose(each, anneal.stack([m(x) for m in models]), atol=1e-6)
    for name, stacked in buffers.items():
        assert anneal.allclose(stacked, anneal.stack([m.state_dict()[name] for m in models])), name


def test_batched_weights_of_gradients_are_stacked() -> None:
    x = anneal.tensor([1.0, 2.0], requires_grad=True)
    unused = anneal.ones(3, requires_grad=True)
    (rows, none) = anneal.autograd.grad(
        x**2, [x, unused], anneal.eye(2), only_inputs=True, allow_unused=True, is_grads_batched=True
    )
    assert rows.tolist() == [[2.0, 0.0], [0.0, 4.0]]
    assert none is None


def test_fake_quantisation_passes_gradients_within_its_range() -> None:
    """The values and gradients are torch's."""
    x = anneal.tensor([0.26, -3.0, 9.0, -2.2, 1.7, 0.25], requires_grad=True)
    y = anneal.fake_quantize_per_tensor_affine(x, 0.5, 1, -4, 3)
    y.sum().backward()
    assert y.tolist() == [0.5, -2.5, 1.0, -2.0, 1.0, 0.0]
    assert x.grad.tolist() == [1.0, 0.0, 0.0, 1.0, 0.0, 1.0]


def test_printed_optimisers_show_their_groups() -> None:
    weights = [anneal.nn.Parameter(anneal.zeros(1)) for _ in range(2)]
    text = repr(anneal.optim.SGD([{"params": [weights[0]], "lr": 0.2}, {"params": [weights[1]]}], lr=0.1))
    first, second = text.split("\n\n")
    assert first.startswith("SGD (\nParameter Group 0\n    dampening: ")
    assert "\n    lr: 0.2\n" in first
    assert second.startswith("Parameter Group 1\n    dampening: ")
    assert "\n    lr: 0.1\n" in second
    assert second.endswith("\n)")


def test_low_rank_decompositions_are_the_first_of_all() -> None:
    x = anneal.arange(12.0).reshape(4, 3).sin()
    u, s, v = anneal.svd_lowrank(x, q=2)
    assert [t.shape for t in (u, s, v)] == [(4, 2), (2,), (3, 2)]
    assert anneal.allclose(s, anneal.linalg.svdvals(x)[:2])
    centred = x - x.mean(0)
    u, s, v = anneal.pca_lowrank(x)
    assert anneal.allclose(u @ anneal.diag(s) @ v.T, centred, atol=1e-5)


class Counted(anneal.optim.Optimizer):
    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.5})

    @anneal.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for p in self.param_groups[0]["params"]:
            state = self.state[p]
            state["step"] = state.get("step", 0) + 1
            state["row"] = p.grad.sum(0) / state["step"]
            p.sub_(state["row"] * self.param_groups[0]["lr"])


def test_the_state_of_an_optimiser_with_its_own_step_is_loaded_as_it_was() -> None:
    """A count stays a number, and a state may have another shape than its parameter."""
    w = anneal.nn.Parameter(anneal.ones(2, 3))
    optimiser = Counted([w])
    (w * 2).sum().backward()
    optimiser.step()
    fresh = Counted([w])
    fresh.load_state_dict(optimiser.state_dict())
    assert fresh.state[w]["step"] == 1
    fresh.step()
    assert (fresh.state[w]["step"], fresh.state[w]["row"].tolist()) == (2, [2.0] * 3)
    assert w.tolist() == [[-2.0] * 3] * 2


if __name__ == "__main__":
    import torch

    TABLE.write_text(json.dumps({"torch": torch.__version__, "rows": shown(torch)}, indent=1) + "\n")
