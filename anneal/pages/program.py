"""From captured calls to a program for one profile: buffers, kernels and calls by number, as JSON says them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from anneal.backend import AnyDevice, Array, OpaqueBuffer, Storage, cost_models, numpy_dtype, register_host
from anneal.codegen import GeneratedKernel, Target, bindings_of, generate
from anneal.errors import DTypeError, JitError, SettingError, UserError
from anneal.frozen import Json, Texts, frozen
from anneal.runtime import Jit, compiled, modes, realize
from anneal.schedule import Call, CostModel, Kernel, Plan
from anneal.tensor import Tensor, tree_leaves
from anneal.uop import DType, Op, UOp
from anneal.uop.sizes import Size, variables_of, widest

_WORDS = {Op.ADD: "+", Op.MUL: "*", Op.SUB: "-", Op.IDIV: "/", Op.MOD: "%", Op.MIN: "min", Op.MAX: "max"}
_TURNS = 128  # of a loop: each is kernels of its own
_CALLS = 5  # an optimiser makes its state in the first, and what a function changed is seen in the next
HELD = {"float32": "f32", "int32": "i32", "uint32": "u32", "bool": "bool"}  # what a page gives and takes


def held(name: str, dtype: DType) -> str:
    """The page's name of a dtype. Raises DTypeError for one that it has no array of."""
    if dtype.name not in HELD:
        raise DTypeError(f"export: {name} is {dtype.name}; a page takes and gives {', '.join(HELD)}: cast it")
    return HELD[dtype.name]


def expression(u: Size) -> Any:
    """A size as JSON: a number, the name of a Variable, or a list of an operation and its operands.

    >>> from anneal.tensor import Variable
    >>> expression(Variable("n", 1, 8) * 64 + 1)
    ['+', ['*', 'n', 64], 1]
    """
    if not isinstance(u, UOp):
        return int(u)
    if u.is_const:
        return u.arg
    if u.op in (Op.VARIABLE, Op.BIND):
        return u.arg[0]
    if u.op not in _WORDS:
        raise UserError(f"export: a size is computed by {u.op.name}, which a page cannot do")
    return [_WORDS[u.op], *map(expression, u.src)]


def nbytes(size: int, dtype: DType) -> int:
    """The bytes of a buffer: whole vectors, as kernels read them."""
    return max(16, -(-size * dtype.device_itemsize // 16) * 16)


@dataclass(frozen=True, slots=True, eq=False)
class BoundStep:
    """A captured call. Memory is equal where it is the same object.

    Args:
        device: where it is bound.
        launches: in order, each a plan with the memory of its values by number.
        copies: after the launches: new values of state, and the state's memory.
        arguments: the memory of the arguments' tensors, in their order.
        tensors: the tensors that outlive the call, with the memory that is read, and whether it is written.
        variables: the values that the Variables had.
        result: what the call gave. results: its tensors, each with its memory, None where it is in none.
        jit: the owner of the memory.
    """

    device: AnyDevice
    launches: Sequence[tuple[Plan, Sequence[OpaqueBuffer]]]
    copies: Sequence[tuple[OpaqueBuffer, OpaqueBuffer]]
    arguments: Sequence[OpaqueBuffer]
    tensors: Sequence[tuple[Storage, Any, bool]]
    variables: Mapping[str, int]
    result: Any
    results: Sequence[tuple[Any, OpaqueBuffer | None]]
    jit: Jit[..., Any]


def bound_step(function: Callable[..., Any], args: tuple[Any, ...]) -> BoundStep:
    """Call `function` until a call is captured, with loops written out; the captured call.

    Raises JitError with the reason where calls are not captured, and for one that needs the host in the middle;
    TransformError for a loop of many turns.
    """
    jit = Jit(function)
    with modes(unrolls=_TURNS):
        for _ in range(_CALLS):
            result = jit(*args)
            places, captured = next(((key[1], c) for key, c in jit.captures.items() if c is not None), ((), None))
            if captured is not None or jit.uncaptured:
                break
    if captured is None:
        raise JitError(f"a call cannot be taken as a fixed list of kernels: {jit.explain()}")
    launches, copies, held = captured.laid_out()
    tensors = [(r.storage, t, False) for r in captured.reads.values() if (t := r.ref()) is not None]
    tensors += [(w.storage, t, True) for w in captured.state.values() if (t := w.ref()) is not None]
    made = [t for t in tree_leaves(result) if isinstance(t, Tensor)]
    memory = [staging.memory.ensure() for staging in captured.arguments]
    return BoundStep(
        captured.device,
        [(launch.plan, launch.buffers) for launch in launches],
        [(copy.aside.ensure(), copy.state.storage.ensure()) for copy in copies],
        [memory[n] for n in places],
        tensors,
        dict(captured.bound),
        result,
        [(t, None if s is None else s.ensure()) for t, s in zip(made, held, strict=True)],
        jit,
    )


@dataclass(eq=False)
class PageProgram:
    """The program of one profile. `add` takes a function; then `data` is what a page reads.

    Tensors that several functions read or write have one buffer. What is computed on the way has memory that all
    functions share, since a page runs one at a time.

    Values travel with a page: what the functions give for the example, as they stand, on this device and with its own
    plans; and what each kernel of the page's plan leaves, so that a page whose results differ can name the first kernel
    that does. How far both may be off follows from the ops of the plan.
    """

    profile: DeviceProfile
    pack: list[str]  # WGSL of distinct kernels, shared by the profiles of an export
    names: Callable[[Tensor], str]
    plan: int  # profiles of one number fuse alike, and have the same calls
    buffers: list[int] = field(default_factory=list)  # bytes
    weights: dict[str, int] = field(default_factory=dict)  # name: buffer
    written: set[str] = field(default_factory=set)
    constants: dict[str, Array] = field(default_factory=dict)
    scratch: list[int] = field(default_factory=list)  # buffers that all functions share, largest first
    kernels: list[Json] = field(default_factory=list)
    functions: dict[str, Json] = field(default_factory=dict)
    _numbers: dict[tuple[str, tuple[Any, ...]], int] = field(default_factory=dict)

    def add(self, name: str, step: BoundStep, inputs: Sequence[tuple[str, Tensor]], outputs: Sequence[str]) -> None:
        """Add a captured call under a name, with the names of its inputs and outputs."""
        known = {id(s.ensure()): self._tensor(t, written) for s, t, written in step.tensors}
        for (_, t), buffer in zip(inputs, step.arguments, strict=True):
            if id(buffer) not in known:
                known[id(buffer)] = self._buffer(nbytes(prod(widest(t.uop.shape)), t.uop.dtype))
        self._place(name, step, known)
        calls = [self._call(c, buffers, known) for plan, buffers in step.launches for c in plan.calls]
        self.functions[name] = {
            "inputs": [_named(n, t, known[id(b)]) for (n, t), b in zip(inputs, step.arguments, strict=True)],
            "outputs": [_output(n, t, b, known) for n, (t, b) in zip(outputs, step.results, strict=True)],
            "variables": _variables(step),
            "calls": calls,
            "copies": [[known[id(a)], known[id(b)]] for a, b in step.copies],
        }

    def _buffer(self, size: int) -> int:
        if size > self.profile.buffer_bytes:
            raise UserError(
                f"export: a tensor takes {size} bytes, and {self.profile.name} has buffers of up to "
                f"{self.profile.buffer_bytes}; split it, or export for a larger profile"
            )
        self.buffers.append(size)
        return len(self.buffers) - 1

    def _tensor(self, t: Tensor, written: bool) -> int:
        name = self.names(t)
        if written:
            self.written.add(name)
        if name not in self.weights:
            self.weights[name] = self._buffer(nbytes(prod(widest(t.uop.shape)), t.uop.dtype))
        return self.weights[name]

    def _place(self, name: str, step: BoundStep, known: dict[int, int]) -> None:
        """Give a buffer to what the launches read and write besides: constants, and memory on the way."""
        made: dict[int, int] = {}  # bytes
        for plan, buffers in step.launches:
            for v, (value, buffer) in enumerate(zip(plan.values, buffers, strict=True)):
                key, size = id(buffer), nbytes(value.size, value.dtype)
                if key in known:
                    self.buffers[known[key]] = max(self.buffers[known[key]], size)
                elif v < plan.inputs and key not in made:
                    label = f"constant.{len(self.constants)}"
                    self.constants[label] = step.device.download(buffer, value.size, value.dtype)
                    known[key] = self.weights[label] = self._buffer(size)
                else:
                    made[key] = max(made.get(key, 0), size)
        for n, (key, size) in enumerate(sorted(made.items(), key=lambda item: -item[1])):
            if n == len(self.scratch):
                self.scratch.append(self._buffer(size))
            known[key] = self.scratch[n]
            self.buffers[known[key]] = max(self.buffers[known[key]], size)

    def _call(self, call: Call, buffers: Sequence[OpaqueBuffer], known: Mapping[int, int]) -> list[Any]:
        kernel, number = self._kernel(call.kernel)
        args = [known[id(buffers[v])] for v in call.args]
        needed = kernel.launch.needed
        return [number, args, list(kernel.grid), *([] if needed is None else [expression(needed)])]

    def _kernel(self, planned: Kernel) -> tuple[GeneratedKernel, int]:
        target = self.profile.target
        try:
            kernel = generate(planned.sink, target)
        except DTypeError as e:
            what = str(e).partition(":")[0].removeprefix("device 'webgpu' ")
            raise DTypeError(
                f"export: profile {self.profile.name} {what}, which kernel {planned.name} computes with; cast it, or "
                "make the tensors on pages.page_device(), where sums of integers are of 32 bits"
            ) from e
        bindings = bindings_of(kernel.params, target.binding_bytes)
        if len(bindings) > self.profile.buffers:
            raise UserError(
                f"export: kernel {planned.name} binds {len(bindings)} buffers, and {self.profile.name} has "
                f"{self.profile.buffers}: a tensor of several bindings is too large for it"
            )
        key = (kernel.source, kernel.variables)
        found = self._numbers.get(key)
        if found is None:
            if kernel.source not in self.pack:
                self.pack.append(kernel.source)
            found = self._numbers[key] = len(self.kernels)
            self.kernels.append(
                {
                    "name": planned.name,
                    "source": self.pack.index(kernel.source),
                    "bindings": [[b.number, b.slot, b.offset, b.length, int(b.written)] for b in bindings],
                    "variables": list(kernel.variables),
                }
            )
        return kernel, found

    def data(self) -> Json:
        """The program as model.json has it."""
        return {
            "profile": self.profile.name,
            "software": self.profile.software,
            "plan": self.plan,
            "limits": self.profile.limits(),
            "features": list(self.profile.features),
            "subgroup": self.profile.target.subgroup,
            "buffers": self.buffers,
            "weights": self.weights,
            "state": sorted(self.written),
            "kernels": self.kernels,
            "functions": self.functions,
        }


def _named(name: str, t: Tensor, buffer: int) -> Json:
    shape = t.uop.shape
    return {
        "name": name,
        "buffer": buffer,
        "dtype": held(name, t.uop.dtype),
        "shape": [expression(n) for n in shape],
        "room": list(widest(shape)),
    }


def _output(name: str, t: Tensor, buffer: OpaqueBuffer | None, known: Mapping[int, int]) -> Json:
    if buffer is None or id(buffer) not in known:
        raise UserError(
            f"export: result {name} is computed by no kernel: it is a constant, or a copy of a tensor that outlives "
            "the call; return what the call computes"
        )
    return _named(name, t, known[id(buffer)])


def _variables(step: BoundStep) -> list[Json]:
    found = {v.arg[0]: v.arg for plan, _ in step.launches for v in plan.variables}
    for t, _ in step.results:
        found.update((v.arg[0], v.arg) for n in t.uop.shape for v in variables_of(n))
    return [{"name": n, "low": a[1], "high": a[2], "example": step.variables[n]} for n, a in sorted(found.items())]


# -- profiles ---------------------------------------------------------------------------------------------------------
# What a browser's adapter allows, as kernels that are generated ahead of time rely on it.
#
# Limits are those that a page asks for when it opens the adapter. `browser` is what every WebGPU adapter has.


@frozen
class DeviceProfile:
    """The limits and features that kernels rely on.

    Args:
        name: as `--for` takes it.
        about: which machines have it.
        buffers: the storage buffers of one kernel.
        buffer_bytes: the largest buffer.
        target: what generated code relies on.
        features: WebGPU's names of the features that the page asks for.
        software: whether it is for adapters that run kernels on the CPU, and for these alone.
    """

    name: str
    about: str
    buffers: int = 8
    buffer_bytes: int = 1 << 28
    target: Target = field(default_factory=Target)
    features: Texts = ()
    software: bool = False

    @property
    def cost_model(self) -> CostModel:
        """The prices that kernels are fused by. Calls run in order, on memory of one dtype, and no scores are computed
        again for each reader: the host runs this plan too."""
        return replace(cost_models.gpu(self.buffers, self.target.binding_bytes), concurrent=False, chained_bytes=0)

    def limits(self) -> dict[str, int]:
        """The limits by WebGPU's names, as `requestDevice` takes them."""
        t = self.target
        return {
            "maxStorageBuffersPerShaderStage": self.buffers,
            "maxStorageBufferBindingSize": t.binding_bytes,
            "maxBufferSize": self.buffer_bytes,
            "maxComputeWorkgroupStorageSize": t.workgroup_bytes,
            "maxComputeInvocationsPerWorkgroup": t.max_threads,
            "maxComputeWorkgroupSizeX": t.max_threads,
        }


_WIDE = Target(max_threads=1024, workgroup_bytes=32768, f16=True)
PROFILES = {
    p.name: p
    for p in (
        DeviceProfile("browser", "every browser with WebGPU, its default limits"),
        DeviceProfile(
            "software", "browsers whose WebGPU runs on the CPU: SwiftShader, llvmpipe", target=Target(barriers=False),
            software=True,
        ),
        DeviceProfile(
            "desktop", "GPUs whose subgroups have 32 threads or more, as those of desktops", 10,
            target=Target(workgroup_bytes=32768, subgroup=32, names_subgroups=True), features=("subgroups",),
        ),
        DeviceProfile(
            "adreno", "phones with an Adreno of 2021 or later, as Chrome for Android opens it", 8, 1 << 30,
            replace(_WIDE, binding_bytes=1 << 28), ("shader-f16",),
        ),
        DeviceProfile(
            "m1", "Macs with Apple's M1 or later", 10, 1 << 32,
            replace(_WIDE, binding_bytes=(1 << 32) - 4), ("shader-f16",),
        ),
    )
}  # fmt: skip


def profile(name: str | DeviceProfile) -> DeviceProfile:
    """The profile of that name, or one's own. Raises SettingError, with those that there are, for another name.

    >>> profile("browser").buffers
    8
    """
    if isinstance(name, DeviceProfile):
        return name
    if name not in PROFILES:
        raise SettingError(f"there is no profile {name!r}; profiles are {', '.join(PROFILES)}")
    return PROFILES[name]


def page_device() -> str:
    """The name of a device that computes on the cpu and has a browser's dtypes: where a model that would take int64 or
    float64 takes the narrower ones, as it does on a GPU that has no others."""
    register_host("browser", Target().dtypes)
    return "browser"


@contextmanager
def planned_for(device: AnyDevice, wanted: DeviceProfile) -> Iterator[None]:
    """A block in which what runs on `device` is planned as for a profile; no adapter is opened for it."""
    before = device.cost_model
    with device.lock:
        device.cost_model = wanted.cost_model
        try:
            yield
        finally:
            device.cost_model = before


_TRIALS = 4
_PLACES = 64  # elements of a value that is read in part
Values = Mapping[int, tuple[Tensor, Array]]  # by the tensor's id
Bounds = Callable[..., list[Any]]


def state_of(steps: Sequence[BoundStep]) -> dict[int, tuple[Tensor, Array]]:
    """The tensors that the steps read or write, with their values now."""
    return values_of([t for step in steps for _, t, _ in step.tensors])


def values_of(tensors: Sequence[Tensor]) -> dict[int, tuple[Tensor, Array]]:
    """Tensors with their values now, by id."""
    realize(tensors)
    return {id(t): (t, t.numpy()) for t in tensors}


def put_back(values: Values) -> None:
    """Give the tensors these values again."""
    for t, array in values.values():
        t.assign(Tensor(array, device=t.device))
    realize([t for t, _ in values.values()])


def judged(
    step: BoundStep, values: Values, inputs: Sequence[Tensor], bounds: Bounds
) -> tuple[list[list[list[Any]]], list[float]]:
    """The values that a page compares its own with by the plan of `step`, and how far they may be apart.

    Kernels run one by one. What each may round, by its ops and on the values that it reads, is what `anneal check`
    allows: `bounds` is `inspect.error_bounds`. Runs that change every value by some of that, at random, show what
    becomes of it: twice the largest difference that they make is allowed.

    Returns:
        For each call, of each value that it writes: dtype (None: no page has an array of it), size, a weighted sum, how
        far that may be off, and the places that it is of where not all are read. And for each result how far an
        element may be off.
    """
    errors: list[tuple[Array, Array | None]] = []
    sums, results = _played(step, values, inputs, errors, bounds)
    rng = np.random.default_rng(0)
    trials = [_played(step, values, inputs, errors, rng) for _ in range(_TRIALS)]
    number = iter(range(len(sums)))
    calls = []
    for plan, _ in step.launches:
        for call in plan.calls:
            found = []
            for v, n in zip(call.args[: call.outputs], number):
                off = _rounded(max(_apart(t[n], sums[n]) for t, _ in trials) + 1e-8 * abs(sums[n]))
                entry = [HELD.get(plan.values[v].dtype.name), plan.values[v].size, float(f"{sums[n]:.9g}"), off]
                found.append(entry if (read := errors[n][1]) is None else [*entry, _some(read).tolist()])
            calls.append(found)
    return calls, [_rounded(max(_apart(t[n], r) for _, t in trials)) for n, r in enumerate(results)]


def _rounded(off: float) -> float:
    return float(f"{2 * off:.3g}")


def _apart(a: Any, b: Any) -> float:
    """The largest difference of two arrays, where both are finite."""
    with np.errstate(invalid="ignore"):
        apart = np.abs(np.subtract(a, b, dtype=np.float64))
    return float(np.max(apart, initial=0.0, where=np.isfinite(apart)))


def _played(
    step: BoundStep,
    values: Values,
    inputs: Sequence[Tensor],
    errors: list[tuple[Array, Array | None]],
    change: Bounds | np.random.Generator,
) -> tuple[list[float], list[Array]]:
    """Run the kernels one by one: the weighted sum of each value that one writes, and the results. By bounds
    it lists in `errors` what each value may be off; by chance it changes each by as much at most.
    """
    device = step.device
    kept = {id(s.ensure()): t for s, t, _ in step.tensors}
    for storage, t, _ in step.tensors:
        device.upload(storage.ensure(), values[id(t)][1])
    for t, buffer in zip(inputs, step.arguments, strict=True):
        device.upload(buffer, np.ascontiguousarray(t.numpy()))
    sums: list[float] = []
    for plan, buffers in step.launches:
        known = {v.arg[0]: step.variables[v.arg[0]] for v in plan.variables}
        for program, call in zip(compiled(plan, device), plan.calls, strict=True):
            memory = [(buffers[v], plan.values[v].size, plan.values[v].dtype) for v in call.args]
            written, read = memory[: call.outputs], {id(b) for b, _, _ in memory[call.outputs :]} | kept.keys()
            for buffer, size, dtype in written:
                if id(buffer) not in read:  # what is not written is 0, here and in the page
                    device.upload(buffer, np.zeros(size, numpy_dtype(dtype)))
            if not isinstance(change, np.random.Generator):
                errors += change(call.kernel.sink, device.download_all(memory), call.outputs, known)
            device.prepare([(program, [b for b, _, _ in memory])], known).run()
            for buffer, size, dtype in written:
                found = device.download(buffer, size, dtype)
                if isinstance(change, np.random.Generator) and dtype.is_float:
                    found = (found + change.uniform(-1, 1, size) * errors[len(sums)][0]).astype(found.dtype)
                    device.upload(buffer, found)
                sums.append(_sum(found, errors[len(sums)][1]))
    for aside, state in step.copies:
        u = kept[id(state)].uop
        device.upload(state, device.download(aside, prod(widest(u.shape)), u.dtype))
    results = [(b, prod(widest(t.uop.shape)), t.uop.dtype) for t, b in step.results if b is not None]
    return sums, device.download_all(results)


def _some(places: Array) -> Array:
    """Positions to sample: at most `_PLACES` of them, spread evenly."""
    return places[:: -(-len(places) // _PLACES) or 1]


def _sum(array: Array, places: Array | None) -> float:
    """The sum of elements, each with a weight from -1 to 1 that its place gives: other values have another sum. Of some
    elements, where not all are read."""
    at = np.arange(array.size) if places is None else _some(places)
    weights = ((at + 1).astype(np.uint32) * np.uint32(0x9E3779B1)).view(np.int32) / 2**31
    return float(weights @ np.nan_to_num(array[at].astype(float), nan=0.0, posinf=0.0, neginf=0.0))


def expected(function: Callable[..., Any], args: tuple[Any, ...], values: Values) -> list[Array]:
    """The results of the function itself, from these values of its tensors; as a jit function, which draws random
    numbers from the places that a page draws them from."""
    put_back(values)
    results = [t for t in tree_leaves(Jit(function)(*args)) if isinstance(t, Tensor)]
    realize(results)
    return [np.ascontiguousarray(t.numpy()) for t in results]
