"""The settings that a printed layer shows, in torch's order and form."""

from __future__ import annotations

from typing import Any

_PAD = ("1d", "2d", "3d")
_POOL = "kernel_size stride padding"
_CONV = "=in_channels =out_channels kernel_size* stride* padding*0 dilation*1"
_CONV_END = "groups?1 bias?True padding_mode!zeros"
_NORM = "=num_features eps momentum affine bias track_running_stats"
_RNN = "=input_size =hidden_size num_layers?1 bias?True batch_first?False dropout?0.0 bidirectional?False"
_CELL = "=input_size =hidden_size bias?True nonlinearity!tanh"


def _of_axes(names: str, shown: str) -> dict[str, str]:
    return {f"{name}{axes}": shown for name in names.split() for axes in _PAD}


# A word is a setting: `name` shows name=value; `=name` the value alone; `name?x` only another value than x; `name!x`
# that without quotes; `name*` a value for each axis, `name*x` unless all are x.
_TABLE = {
    **_of_axes("Conv", f"{_CONV} {_CONV_END}"),
    **_of_axes("ConvTranspose", f"{_CONV} output_padding*0 {_CONV_END}"),
    **_of_axes("BatchNorm InstanceNorm", _NORM),
    **_of_axes("MaxPool", f"{_POOL} dilation ceil_mode"),
    **_of_axes("AvgPool", _POOL),
    "AvgPool1d": "kernel_size* stride* padding*",
    **_of_axes("AdaptiveAvgPool AdaptiveMaxPool", "output_size"),
    **_of_axes("MaxUnpool", "kernel_size* stride* padding*"),
    **_of_axes("ZeroPad ReflectionPad ReplicationPad CircularPad", "=padding"),
    **dict.fromkeys(("RNN", "LSTM", "GRU"), _RNN),
    **dict.fromkeys(("RNNCell", "LSTMCell", "GRUCell"), _CELL),
    **dict.fromkeys(("Hardshrink", "Softshrink"), "=lambd"),
    "SyncBatchNorm": _NORM,
    "LayerNorm": "=normalized_shape eps elementwise_affine bias",
    "RMSNorm": "=normalized_shape eps elementwise_affine",
    "GroupNorm": "=num_groups =num_channels eps affine bias",
    "LocalResponseNorm": "=size alpha beta k",
    "Linear": "in_features out_features bias",
    "Bilinear": "in1_features in2_features out_features bias",
    "Embedding": "=num_embeddings =embedding_dim padding_idx?None max_norm?None norm_type?2.0 scale_grad_by_freq?False "
    "sparse?False",
    "EmbeddingBag": "=num_embeddings =embedding_dim max_norm?None norm_type?2.0 scale_grad_by_freq?False mode "
    "padding_idx?None",
    "_Dropout": "p inplace",
    "ReLU6": "inplace?False",
    **dict.fromkeys(("_Loss", "_FractionalMaxPool", "CosineSimilarity"), ""),
    "PReLU": "num_parameters",
    "Upsample": "size?None scale_factor?None mode",
}
_OF_TENSORS = {  # settings of which a layer keeps the tensors that they ask for
    "bias": ("bias", "bias_ih"),
    "affine": ("weight",),
    "elementwise_affine": ("weight",),
    "track_running_stats": ("running_mean",),
}


def settings_shown(module: Any) -> str:
    """The text between the brackets of a printed layer: the settings that the table has for its class or a base, or a
    row's own.

    >>> from anneal import nn
    >>> settings_shown(nn.Conv2d(3, 8, 3, padding=1, bias=False))
    '3, 8, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1), bias=False'
    """
    for kind in type(module).__mro__:
        if kind.__name__ in _TABLE and kind.__module__.startswith("anneal.nn."):
            return _shown(module, kind, _TABLE[kind.__name__].split())
    rows = getattr(module, "_settings", ())
    return _shown(module, type(module), ["inplace?False" if name == "inplace" else name for name in rows])


def _shown(module: Any, kind: type, words: list[str]) -> str:
    return ", ".join([s for s in [_setting(module, kind, word) for word in words] if s])


def _setting(module: Any, kind: type, word: str) -> str:
    alone = word.startswith("=")
    name = word.lstrip("=")
    mark = next((c for c in "?!*" if c in name), "")
    usual = ""
    if mark:
        name, _, usual = name.partition(mark)
    value = _value(module, name)
    if mark == "*" and not isinstance(value, str):
        axes = int(kind.__name__[-2])
        value = tuple(value) if isinstance(value, (tuple, list)) else (value,) * axes
        if usual and all(str(v) == usual for v in value):
            return ""
    elif usual and (str(value) == usual or value is None):
        return ""
    text = str(value) if mark in ("!", "*") else repr(value)
    return text if alone else f"{name}={text}"


def _value(module: Any, name: str) -> Any:
    found = module.weight.numel() if name == "num_parameters" else getattr(module, name, None)
    if name not in _OF_TENSORS or isinstance(found, bool):
        return found
    return any(getattr(module, t, None) is not None for t in _OF_TENSORS[name])
