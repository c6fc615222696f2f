"""Methods of Tensor that it has since torch's has them: matrices, activations, devices and facts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from anneal.doors import MethodsLater
from anneal.runtime import Handle

if TYPE_CHECKING:  # mypy has not read those rooms yet: it reads files of one circle one by one
    ops: Any
    older: Any
else:
    ops, older = map(MethodsLater, ("anneal.ops", "anneal.linalg.older"))

__all__ = ["TorchMethods"]


class TorchMethods(Handle):
    """The methods; the class Tensor is derived from it."""

    __slots__ = ()

    cosine_similarity = ops.cosine_similarity
    cdist = ops.cdist
    fix = ops.fix
    ger = ops.ger
    glu = ops.glu
    gumbel_softmax = ops.gumbel_softmax
    is_complex = ops.is_complex
    is_nonzero = ops.is_nonzero
    is_same_size = ops.is_same_size
    is_signed = ops.is_signed
    normalize = ops.normalize

    cholesky = older.cholesky
    cholesky_inverse = older.cholesky_inverse
    cholesky_solve = older.cholesky_solve
    det = older.det
    inverse = older.inverse
    logdet = older.logdet
    matrix_exp = older.matrix_exp
    pinverse = older.pinverse
    qr = older.qr
    slogdet = older.slogdet
    svd = older.svd
    triangular_solve = older.triangular_solve

    def cuda(self, device: Any = None, non_blocking: bool = False) -> NoReturn:
        """Raise DeviceError, which says what to write: there is no CUDA here, and GPUs are "webgpu".

        `device` and `non_blocking` are torch's.

        >>> from anneal.errors import DeviceError
        >>> from anneal.tensor import Tensor
        >>> try:
        ...     Tensor([1.0]).cuda()
        ... except DeviceError as error:
        ...     print(str(error).partition(":")[0])
        to
        """
        tensor: Any = self
        tensor.to("cuda")
        raise AssertionError("unreachable")

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        """The tensor in another `dtype`; without one the dtype's name. `non_blocking` is torch's, and of no account.

        >>> from anneal.tensor import Tensor
        >>> Tensor([1.5]).type("int32"), Tensor([1.5]).type()
        (Tensor([1], dtype=int32), 'float32')
        """
        tensor: Any = self
        return tensor.dtype.name if dtype is None else tensor.cast(dtype)

    @property
    def is_cuda(self) -> bool:
        """Whether the tensor lives on a GPU of CUDA: False, GPUs are "webgpu"."""
        return False

    @property
    def is_cpu(self) -> bool:
        """Whether the tensor lives on the device "cpu"."""
        return self.device == "cpu"
