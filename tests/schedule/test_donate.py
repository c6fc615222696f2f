"""In-place updates: allowed exactly where nobody can see the difference."""

from __future__ import annotations

from anneal.schedule import donate
from anneal.uop import Op, UOp

from .build import F32, buffer, matmul, plan, reshape
from .test_fusion import adam


def test_adam_updates_in_place() -> None:
    p = plan(*adam())
    inputs = {v: v for v in range(p.inputs)}
    assert len(inputs) == 4
    call = p.calls[0]
    # moments and parameter: pair each output with an input that the kernel reads at the stored index
    wanted = dict(zip(p.outputs, list(call.args[call.outputs :])[:3], strict=False))
    new, done = donate(p, wanted)
    assert done == wanted
    assert len(new.calls[0].args) == len(call.args) - 3


def test_a_flipped_copy_cannot_be_in_place() -> None:
    x = buffer(16)
    flipped = UOp(Op.FLIP, F32, (x,), (0,)) + 1.0
    p = plan(flipped)
    _, done = donate(p, {p.outputs[0]: 0})
    assert done == {}


def test_a_later_reader_forbids_it() -> None:
    x, w = buffer(8, 8), buffer(8, 8)
    update = w * 0.5
    reader = matmul(x, w)
    p = plan(update, reader)
    slot = next(c for c in p.calls if c.args[0] == p.outputs[0]).args[1]
    new, done = donate(p, {p.outputs[0]: slot})
    for value, source in done.items():
        writer = next(n for n, c in enumerate(new.calls) if value in c.args[: c.outputs])
        assert all(source not in c.args for c in new.calls[writer + 1 :])
    assert len(new.calls) == 2


def test_an_output_that_others_read_keeps_its_own_memory_if_they_read_the_input_too() -> None:
    w = buffer(8, 8)
    update = w * 0.5
    p = plan(update, matmul(update, w))
    _, done = donate(p, {p.outputs[0]: 0})
    assert done == {}


def test_an_output_that_others_read_is_written_in_place_before_them() -> None:
    w, x = buffer(8, 8), buffer(8, 8)
    update = w * 0.5
    p = plan(update, matmul(update, x))
    writer = next(c for c in p.calls if p.outputs[0] in c.args[: c.outputs])
    new, done = donate(p, {p.outputs[0]: writer.args[1]})
    assert done == {p.outputs[0]: writer.args[1]}
    order = [p.outputs[0] in c.args[: c.outputs] for c in new.calls]
    assert order.index(True) < order.index(False)


def test_a_counter_waits_for_those_who_read_it() -> None:
    """Its next value is read too, but only after the old one is read for the last time."""
    count, x, y = buffer(8), buffer(8), buffer(8, 8)
    following = count + 1.0
    first = x * count + x
    later = matmul(y, reshape(first, 8, 1)) * reshape(count, 8, 1)
    last = matmul(y, later) * reshape(following, 8, 1)
    p = plan(following, first, last)
    slot = next(c for c in p.calls if p.outputs[0] in c.args[: c.outputs]).args[1]
    new, done = donate(p, {p.outputs[0]: slot})
    assert done == {p.outputs[0]: slot}
    at = next(n for n, c in enumerate(new.calls) if p.outputs[0] in c.args[: c.outputs])
    assert all(slot not in c.args for c in new.calls[at + 1 :])
    assert [p.outputs[0] in c.args[c.outputs :] for c in new.calls].index(True) > at
