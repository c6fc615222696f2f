"""Neural networks: layers with torch's parameter names and layouts, optimisers, schedules.

A model is a `Module` with tensors and modules as attributes. `functional` has the functions, `init` the
initialisations, `utils` what works on parameters. Files are imported when one of their names is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anneal.doors import names_of, opened_later

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
    from anneal.nn._dropouts import *
    from anneal.nn._layers import *
    from anneal.nn._lazy import *
    from anneal.nn._losses import *
    from anneal.nn._module import Module as Module
    from anneal.nn._multihead import (
        MultiheadAttention as MultiheadAttention,
        Transformer as Transformer,
        TransformerDecoder as TransformerDecoder,
        TransformerDecoderLayer as TransformerDecoderLayer,
        TransformerEncoder as TransformerEncoder,
        TransformerEncoderLayer as TransformerEncoderLayer,
    )
    from anneal.nn._recurrent import *
    from anneal.nn._shapes import *
    from anneal.nn._transformer import *
    from anneal.nn._windows import *
    from anneal.nn.parallel import DataParallel as DataParallel
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
else:
    __getattr__ = opened_later(__name__)
    __all__ = list(names_of(__name__))
