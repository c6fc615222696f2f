"""The exception tree, drawn once."""

from __future__ import annotations

__all__ = [
    "AnnealError", "ArgumentError", "CompilerError", "DTypeError", "DataError", "DeviceError", "GradientError",
    "GroupError", "JitError", "LinAlgError", "MissingMethodError", "ModeError", "OnnxError", "OutOfMemoryError",
    "PositionError", "RangeError", "SettingError", "ShapeError", "SubscriptError", "TransformError", "UserError",
]  # fmt: skip


class AnnealError(Exception):
    """Root of everything anneal raises on purpose.

        AnnealError
        ├── UserError            a mistake in the caller's program or command; message names the fix
        │   ├── ShapeError       (also ValueError, RuntimeError) sizes or axes that do not fit
        │   │   ├── PositionError (also IndexError) an axis that does not exist, or an index out of range
        │   │   │   └── SubscriptError (also DTypeError) an index of a wrong type or dtype
        │   │   ├── ArgumentError (also DTypeError) an argument of the wrong Python type
        │   │   └── ModeError    (also NotImplementedError) a mode of padding or resizing that does not exist
        │   ├── DTypeError       (also TypeError, NotImplementedError) a dtype an op or device does not take
        │   │   └── RangeError   (also OverflowError) an integer out of the range of its dtype
        │   ├── DeviceError      (also RuntimeError) unknown, missing, mixed or lost device
        │   │   └── OutOfMemoryError (also MemoryError) the device has no room for a tensor
        │   ├── GradientError    (also RuntimeError) a derivative that cannot be made
        │   ├── LinAlgError      (also RuntimeError) a matrix that has no inverse, no Cholesky factor, ...
        │   ├── TransformError   (also RuntimeError) a function or argument that a transform (vmap, ...) cannot take
        │   ├── GroupError       (also RuntimeError) a participant of a group that is missing, or differs
        │   ├── JitError         (also RuntimeError) a value in a jit function that would be frozen when captured
        │   ├── DataError        (also ValueError, RuntimeError) a missing, unwritable or corrupt file
        │   │   └── OnnxError        a model file that is broken, or cannot be run; lists all faults
        │   ├── SettingError     (also ValueError, RuntimeError) an environment variable or flag with a wrong value
        │   └── MissingMethodError (also NotImplementedError) a class without a method that its user must define
        └── CompilerError        our fault: carries the pass, the rule and the node

    An error is of the class that torch raises for the same mistake: RuntimeError for sizes and dtypes (torch's "not
    implemented for 'Float'" is a NotImplementedError, which is one), IndexError for axes and positions. Besides it is
    of the class that NumPy raises, ValueError or TypeError. User errors are raised at the user's call. The command line
    prints them without a traceback and exits with their `exit_code`.
    """

    exit_code = 1


class UserError(AnnealError):
    """A mistake the caller can fix."""

    exit_code = 2


class ShapeError(UserError, ValueError, RuntimeError):
    """Sizes or axes that do not fit together."""


class PositionError(ShapeError, IndexError):
    """An axis that a tensor does not have, or an index outside the axis that it counts along."""


class ModeError(ShapeError, NotImplementedError):
    """A way of padding or resizing that there is not."""


class DTypeError(UserError, TypeError, NotImplementedError):
    """A dtype that an op or a device does not take."""


class ArgumentError(ShapeError, DTypeError):
    """An argument of the wrong Python type: a size that is no int, sizes that are no list of ints."""


class SubscriptError(PositionError, DTypeError):
    """An index of a type or dtype that names no position."""


class RangeError(DTypeError, OverflowError):
    """An integer that its dtype does not hold."""


class DeviceError(UserError, RuntimeError):
    """A device that is unknown, missing, mixed with another, or lost."""

    exit_code = 3


class OutOfMemoryError(DeviceError, MemoryError):
    """The device has no room for a tensor; the message lists what holds most of it."""


class GradientError(UserError, RuntimeError):
    """A derivative that cannot be made."""


class LinAlgError(UserError, RuntimeError):
    """A matrix for which the numbers that were asked for do not exist or were not found."""


class TransformError(UserError, RuntimeError):
    """A function or an argument that a transform cannot take."""


class GroupError(UserError, RuntimeError):
    """A participant of a group that did not come to an exchange, or came to another one."""


class JitError(UserError, RuntimeError):
    """Something inside a jit function would be frozen at its captured value."""


class DataError(UserError, ValueError, RuntimeError):
    """A file that is missing, unwritable or corrupt."""

    exit_code = 4


class OnnxError(DataError):
    """An ONNX model that is broken, or has what cannot be run: `gaps` lists all of it, and so does the message."""

    def __init__(self, message: str, gaps: tuple[object, ...] = ()) -> None:
        super().__init__(message)
        self.gaps = gaps


class SettingError(UserError, ValueError, RuntimeError):
    """An environment variable or flag with a wrong value."""


class MissingMethodError(UserError, NotImplementedError):
    """A method that a subclass of one of anneal's bases must define, and does not."""


class CompilerError(AnnealError):
    """A failure of the compiler itself, with what it was doing.

    Args:
        message: the text of the error.
        stage: the stage of the compiler that failed.
        rule: the rewrite rule that fired, as text.
        node: the node that it met.
    """

    def __init__(self, message: str, *, stage: str = "", rule: str = "", node: object = None) -> None:
        parts = [message]
        if stage:
            parts.append(f"in pass {stage}")
        if rule:
            parts.append(f"at rule {rule!r}")
        if node is not None:
            parts.append(f"on node:\n{node}")
        super().__init__(" ".join(parts))
        self.stage, self.rule, self.node = stage, rule, node
