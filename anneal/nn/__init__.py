"""Neural networks: layers with torch's parameter names and layouts, optimisers, schedules.

A model is a `Module` with tensors and modules as attributes. `init` holds the initialisations.
"""

from anneal.nn import init
from anneal.nn._layers import (
    GELU,
    AvgPool2d,
    BatchNorm2d,
    Conv2d,
    Dropout,
    Embedding,
    Flatten,
    LayerNorm,
    Linear,
    MaxPool2d,
    ModuleList,
    ReLU,
    RMSNorm,
    Sequential,
)
from anneal.nn._module import Module
from anneal.nn._optim import SGD, Adam, AdamW, Optimizer, clip_grad_norm_
from anneal.nn._schedules import LambdaLR, WarmupCosine, warmup_cosine
from anneal.nn._transformer import GPT, MLP, Block, CausalSelfAttention, GPTConfig

__all__ = [
    "GELU",
    "GPT",
    "MLP",
    "SGD",
    "Adam",
    "AdamW",
    "AvgPool2d",
    "BatchNorm2d",
    "Block",
    "CausalSelfAttention",
    "Conv2d",
    "Dropout",
    "Embedding",
    "Flatten",
    "GPTConfig",
    "LambdaLR",
    "LayerNorm",
    "Linear",
    "MaxPool2d",
    "Module",
    "ModuleList",
    "Optimizer",
    "RMSNorm",
    "ReLU",
    "Sequential",
    "WarmupCosine",
    "clip_grad_norm_",
    "init",
    "warmup_cosine",
]
