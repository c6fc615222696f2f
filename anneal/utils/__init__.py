"""What programs need beside tensors and modules, under torch's names: `utils.data` feeds examples in batches."""

from anneal.utils import data

__all__ = ["data"]
