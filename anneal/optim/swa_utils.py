"""Averages of models over the steps of training, under torch's names: files of a package above, opened when used."""

from typing import Any

from anneal.doors import opened_later

__all__ = [
    "SWALR", "AveragedModel", "get_ema_avg_fn", "get_ema_multi_avg_fn", "get_swa_avg_fn", "get_swa_multi_avg_fn",
    "update_bn",
]  # fmt: skip

_later = opened_later(__name__, {"anneal.nn._computed": tuple(__all__)})


def __getattr__(name: str) -> Any:
    return _later(name)
