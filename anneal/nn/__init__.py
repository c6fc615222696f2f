"""Neural networks: layers with torch's parameter names and layouts, optimisers, schedules.

A model is a `Module` with tensors and modules as attributes. `functional` has the functions, `init` the
initialisations, `utils` what works on parameters. Files are imported when one of their names is first used.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from anneal.doors import opened_later

if TYPE_CHECKING:
    from anneal.nn import (
        functional as functional,
        init as init,
        modules as modules,
        parallel as parallel,
        parameter as parameter,
        utils as utils,
    )
    from anneal.nn._activations import *
    from anneal.nn._attention import *
    from anneal.nn._computed import functional_call as functional_call
    from anneal.nn._containers import *
    from anneal.nn._layers import *
    from anneal.nn._losses import *
    from anneal.nn._module import *
    from anneal.nn._multihead import *
    from anneal.nn._reader import Reader as Reader
    from anneal.nn._recurrent import *
    from anneal.nn._shapes import *
    from anneal.nn._transformer import *
    from anneal.nn._windows import *
    from anneal.nn.parameter import *
    from anneal.optim import (
        SGD as SGD,
        Adam as Adam,
        AdamW as AdamW,
        Optimizer as Optimizer,
        clip_grad_norm_ as clip_grad_norm_,
    )
    from anneal.optim.lr_scheduler import (
        LambdaLR as LambdaLR,
        WarmupCosine as WarmupCosine,
        warmup_cosine as warmup_cosine,
    )

# fmt: off
_FILES: dict[str, tuple[str, ...]] = {
    "_activations": (
        "AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout", "CELU", "ELU", "GELU",
        "GLU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU", "LogSigmoid", "LogSoftmax", "Mish",
        "PReLU", "RReLU", "ReLU", "ReLU6", "SELU", "SiLU", "Sigmoid", "Softmax", "Softmax2d", "Softmin", "Softplus",
        "Softshrink", "Softsign", "Tanh", "Tanhshrink", "Threshold",
    ),
    "_attention": (
        "GroupedQueryAttention", "RotaryEmbedding", "SelfAttention", "SwiGLU", "Llama", "LlamaBlock", "LlamaConfig",
    ),
    "_computed": ("functional_call",),
    "_containers": ("ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"),
    "_layers": (
        "Bilinear", "CosineSimilarity", "Embedding", "EmbeddingBag", "Identity", "Linear", "PairwiseDistance",
        "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "CrossMapLRN2d", "GroupNorm", "InstanceNorm1d", "InstanceNorm2d",
        "InstanceNorm3d", "LayerNorm", "LocalResponseNorm", "RMSNorm", "SyncBatchNorm",
    ),
    "_losses": (
        "BCELoss", "BCEWithLogitsLoss", "CosineEmbeddingLoss", "CrossEntropyLoss", "GaussianNLLLoss",
        "HingeEmbeddingLoss", "HuberLoss", "KLDivLoss", "L1Loss", "MSELoss", "MarginRankingLoss",
        "MultiLabelSoftMarginLoss", "MultiMarginLoss", "NLLLoss", "PoissonNLLLoss", "SmoothL1Loss", "SoftMarginLoss",
        "AdaptiveLogSoftmaxWithLoss", "CTCLoss", "LinearCrossEntropyLoss", "MultiLabelMarginLoss", "NLLLoss2d",
        "TripletMarginLoss", "TripletMarginWithDistanceLoss",
    ),
    "_module": ("Module",),
    "_multihead": (
        "MultiheadAttention", "Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder",
        "TransformerEncoderLayer",
    ),
    "parameter": ("Buffer", "Parameter"),
    "_reader": ("Reader",),
    "_recurrent": ("GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNCell"),
    "_shapes": (
        "ChannelShuffle", "Flatten", "Fold", "PixelShuffle", "PixelUnshuffle", "Unflatten", "Unfold", "Upsample",
        "UpsamplingBilinear2d", "UpsamplingNearest2d", "CircularPad1d", "CircularPad2d", "CircularPad3d",
        "ConstantPad1d", "ConstantPad2d", "ConstantPad3d", "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d",
        "ReplicationPad1d", "ReplicationPad2d", "ReplicationPad3d", "ZeroPad1d", "ZeroPad2d", "ZeroPad3d",
    ),
    "_transformer": ("Block", "CausalSelfAttention", "GPT", "GPTConfig", "MLP", "PatchEmbed", "ViT", "ViTBlock"),
    "_windows": (
        "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "AdaptiveAvgPool1d",
        "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d", "AdaptiveMaxPool3d",
        "AvgPool1d", "AvgPool2d", "AvgPool3d", "FractionalMaxPool2d", "FractionalMaxPool3d", "LPPool1d", "LPPool2d",
        "LPPool3d", "MaxPool1d", "MaxPool2d", "MaxPool3d", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d",
    ),
    "anneal.optim": ("Adam", "AdamW", "Optimizer", "SGD", "clip_grad_norm_"),
    "anneal.optim.lr_scheduler": ("LambdaLR", "WarmupCosine", "warmup_cosine"),
}
# fmt: on
_MODULES = ("functional", "init", "modules", "parallel", "parameter", "utils")
__all__ = list(chain(_MODULES, *_FILES.values()))

if not TYPE_CHECKING:
    __getattr__ = opened_later(__name__, {**_FILES, "": _MODULES})


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
