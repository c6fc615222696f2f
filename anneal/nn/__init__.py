"""Neural networks: layers with torch's parameter names and layouts, optimisers, schedules.

A model is a `Module` with tensors and modules as attributes. `functional` has the functions, `init` the
initialisations, `utils` what works on parameters. Files are imported when one of their names is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anneal.doors import opened_later

if TYPE_CHECKING:
    from anneal.nn import functional, init, modules, parameter, utils
    from anneal.nn._activations import *
    from anneal.nn._attention import *
    from anneal.nn._cells import *
    from anneal.nn._containers import *
    from anneal.nn._dropouts import *
    from anneal.nn._functional_call import *
    from anneal.nn._layers import *
    from anneal.nn._llama import *
    from anneal.nn._losses import *
    from anneal.nn._module import *
    from anneal.nn._multihead import *
    from anneal.nn._norms import *
    from anneal.nn._padding import *
    from anneal.nn._parameter import *
    from anneal.nn._pools import *
    from anneal.nn._recurrent import *
    from anneal.nn._sequence_losses import *
    from anneal.nn._shapes import *
    from anneal.nn._transformer import *
    from anneal.nn._vision import *
    from anneal.nn._windows import *
    from anneal.optim import SGD, Adam, AdamW, Optimizer, clip_grad_norm_
    from anneal.optim.lr_scheduler import LambdaLR, WarmupCosine, warmup_cosine

# fmt: off
_FILES: dict[str, tuple[str, ...]] = {
    "_activations": (
        "CELU", "ELU", "GELU", "GLU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU", "LogSigmoid",
        "LogSoftmax", "Mish", "PReLU", "RReLU", "ReLU", "ReLU6", "SELU", "SiLU", "Sigmoid", "Softmax", "Softmax2d",
        "Softmin", "Softplus", "Softshrink", "Softsign", "Tanh", "Tanhshrink", "Threshold",
    ),
    "_attention": ("GroupedQueryAttention", "RotaryEmbedding", "SelfAttention", "SwiGLU"),
    "_cells": ("GRUCell", "LSTMCell", "RNNCell"),
    "_containers": ("ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"),
    "_dropouts": ("AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"),
    "_functional_call": ("functional_call",),
    "_layers": ("Bilinear", "CosineSimilarity", "Embedding", "EmbeddingBag", "Identity", "Linear", "PairwiseDistance"),
    "_llama": ("Llama", "LlamaBlock", "LlamaConfig"),
    "_losses": (
        "BCELoss", "BCEWithLogitsLoss", "CosineEmbeddingLoss", "CrossEntropyLoss", "GaussianNLLLoss",
        "HingeEmbeddingLoss", "HuberLoss", "KLDivLoss", "L1Loss", "MSELoss", "MarginRankingLoss",
        "MultiLabelSoftMarginLoss", "MultiMarginLoss", "NLLLoss", "PoissonNLLLoss", "SmoothL1Loss", "SoftMarginLoss",
        "TripletMarginLoss",
    ),
    "_module": ("Module",),
    "_multihead": (
        "MultiheadAttention", "Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder",
        "TransformerEncoderLayer",
    ),
    "_norms": (
        "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "CrossMapLRN2d", "GroupNorm", "InstanceNorm1d", "InstanceNorm2d",
        "InstanceNorm3d", "LayerNorm", "LocalResponseNorm", "RMSNorm", "SyncBatchNorm",
    ),
    "_padding": (
        "CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d", "ConstantPad3d",
        "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d",
        "ReplicationPad3d", "ZeroPad1d", "ZeroPad2d", "ZeroPad3d",
    ),
    "_parameter": ("Buffer", "Parameter"),
    "_pools": (
        "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d",
        "AdaptiveMaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d", "FractionalMaxPool2d", "FractionalMaxPool3d",
        "LPPool1d", "LPPool2d", "LPPool3d", "MaxPool1d", "MaxPool2d", "MaxPool3d", "MaxUnpool1d", "MaxUnpool2d",
        "MaxUnpool3d",
    ),
    "_recurrent": ("GRU", "LSTM", "RNN"),
    "_sequence_losses": (
        "AdaptiveLogSoftmaxWithLoss", "CTCLoss", "LinearCrossEntropyLoss", "MultiLabelMarginLoss", "NLLLoss2d",
        "TripletMarginWithDistanceLoss",
    ),
    "_shapes": (
        "ChannelShuffle", "Flatten", "Fold", "PixelShuffle", "PixelUnshuffle", "Unflatten", "Unfold", "Upsample",
        "UpsamplingBilinear2d", "UpsamplingNearest2d",
    ),
    "_transformer": ("Block", "CausalSelfAttention", "GPT", "GPTConfig", "MLP"),
    "_vision": ("PatchEmbed", "ViT", "ViTBlock"),
    "_windows": ("Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"),
    "anneal.optim": ("Adam", "AdamW", "Optimizer", "SGD", "clip_grad_norm_"),
    "anneal.optim.lr_scheduler": ("LambdaLR", "WarmupCosine", "warmup_cosine"),
}
__all__ = [
    "CELU", "ELU", "GELU", "GLU", "GPT", "GRU", "LSTM", "MLP", "RNN", "SELU", "SGD", "Adam", "AdamW",
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveLogSoftmaxWithLoss", "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d", "AdaptiveMaxPool3d", "AlphaDropout", "AvgPool1d", "AvgPool2d", "AvgPool3d", "BCELoss",
    "BCEWithLogitsLoss", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "Bilinear", "Block", "Buffer", "CTCLoss",
    "CausalSelfAttention", "ChannelShuffle", "CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d",
    "ConstantPad2d", "ConstantPad3d", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d",
    "ConvTranspose3d", "CosineEmbeddingLoss", "CosineSimilarity", "CrossEntropyLoss", "CrossMapLRN2d", "Dropout",
    "Dropout1d", "Dropout2d", "Dropout3d", "Embedding", "EmbeddingBag", "FeatureAlphaDropout", "Flatten", "Fold",
    "FractionalMaxPool2d", "FractionalMaxPool3d", "GPTConfig", "GRUCell", "GaussianNLLLoss", "GroupNorm",
    "GroupedQueryAttention", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "HingeEmbeddingLoss", "HuberLoss",
    "Identity", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "KLDivLoss", "L1Loss", "LPPool1d", "LPPool2d",
    "LPPool3d", "LSTMCell", "LambdaLR", "LayerNorm", "LeakyReLU", "Linear", "LinearCrossEntropyLoss", "Llama",
    "LlamaBlock", "LlamaConfig", "LocalResponseNorm", "LogSigmoid", "LogSoftmax", "MSELoss", "MarginRankingLoss",
    "MaxPool1d", "MaxPool2d", "MaxPool3d", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d", "Mish", "Module",
    "ModuleDict", "ModuleList", "MultiLabelMarginLoss", "MultiLabelSoftMarginLoss", "MultiMarginLoss",
    "MultiheadAttention", "NLLLoss", "NLLLoss2d", "Optimizer", "PReLU", "PairwiseDistance", "Parameter",
    "ParameterDict", "ParameterList", "PatchEmbed", "PixelShuffle", "PixelUnshuffle", "PoissonNLLLoss", "RMSNorm",
    "RNNCell", "RReLU", "ReLU", "ReLU6", "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d",
    "ReplicationPad2d", "ReplicationPad3d", "RotaryEmbedding", "SelfAttention", "Sequential", "SiLU", "Sigmoid",
    "SmoothL1Loss", "SoftMarginLoss", "Softmax", "Softmax2d", "Softmin", "Softplus", "Softshrink", "Softsign",
    "SwiGLU", "SyncBatchNorm", "Tanh", "Tanhshrink", "Threshold", "Transformer", "TransformerDecoder",
    "TransformerDecoderLayer", "TransformerEncoder", "TransformerEncoderLayer", "TripletMarginLoss",
    "TripletMarginWithDistanceLoss", "Unflatten", "Unfold", "Upsample", "UpsamplingBilinear2d", "UpsamplingNearest2d",
    "ViT", "ViTBlock", "WarmupCosine", "ZeroPad1d", "ZeroPad2d", "ZeroPad3d", "clip_grad_norm_", "functional",
    "functional_call", "init", "modules", "parameter", "utils", "warmup_cosine",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__ = opened_later(__name__, _FILES, ("functional", "init", "modules", "parameter", "utils"))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
