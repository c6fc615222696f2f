"""Whatever a capture depends on is guarded: each attribute of every module, each setting of every optimiser, hooks,
modes and what else a program changes between two calls. A jitted call gives what the function gives by itself then.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import anneal as an
from anneal import nn, optim
from anneal.errors import UserError
from anneal.tensor import Tensor, jit, no_grad
from tests.nn.optim_programs import CHANGED, OPTIMISERS
from tests.tiers import thinned

# Guards look at Python's values, not at kernels; a compiler for each capture took half of the time.
pytestmark = pytest.mark.usefixtures("same_kernels")

# -- modules: every class is made with these arguments, and called with the first of these inputs that it takes ------

ARGUMENTS: dict[str, Any] = {
    "in_features": 4, "out_features": 4, "in1_features": 4, "in2_features": 4, "num_classes": 4, "n_classes": 6,
    "num_features": 4, "num_groups": 2, "num_channels": 4, "normalized_shape": (4,), "in_channels": 4, "out_channels": 4,
    "kernel_size": 2, "output_size": 2, "output_ratio": 0.5, "padding": 1, "value": 0.5, "threshold": 0.1, "size": 2,
    "num_embeddings": 8, "embedding_dim": 4, "input_size": 4, "hidden_size": 4, "embed_dim": 4, "num_heads": 2,
    "d_model": 4, "nhead": 2, "dim_feedforward": 8, "dim": 4, "n_heads": 2, "hidden_dim": 6, "n_embd": 4, "n_head": 2,
    "upscale_factor": 2, "downscale_factor": 2, "groups": 2, "cutoffs": (2, 4), "unflattened_size": (2, 2), "norm_type": 2.0,
    "dropout": 0.0, "max_positions": 8, "vocab_size": 8, "block_size": 8, "n_layer": 1, "num_layers": 1, "img_size": 8,
    "patch_size": 4, "depth": 1, "num_encoder_layers": 1, "num_decoder_layers": 1, "scale_factor": None,
}  # fmt: skip
SPECIAL: dict[str, Callable[[], Any]] = {
    "FractionalMaxPool2d": lambda: nn.FractionalMaxPool2d(2, output_size=3),
    "FractionalMaxPool3d": lambda: nn.FractionalMaxPool3d(2, output_size=3),
    "Fold": lambda: nn.Fold((4, 4), 2),
    "Unflatten": lambda: nn.Unflatten(1, (2, 2)),
    "TransformerEncoder": lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, 0.0), 1),
    "TransformerDecoder": lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(4, 2, 8, 0.0), 1),
    "GPT": lambda: nn.GPT(8, 8, 1, 2, 4),
    "ViT": lambda: nn.ViT(8, 4, 3, 4, 4, 1, 2),
    "Llama": lambda: nn.Llama(nn.LlamaConfig(dim=4, n_layers=1, n_heads=2, vocab_size=8, max_seq_len=8)),
    "LlamaBlock": lambda: nn.Llama(nn.LlamaConfig(dim=4, n_layers=1, n_heads=2, vocab_size=8, max_seq_len=8)),
    "Sequential": lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU()),
}
# not called, or made of a module
ABSTRACT = {
    "DataParallel", "Module", "ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "RNNBase", "RNNCellBase",
}  # fmt: skip
LAZY = tuple([n for n in dir(nn) if n.startswith("Lazy")])  # the first call makes one a layer of another class
CONFIGURED = {"Llama", "LlamaBlock", "Upsample", "UpsamplingBilinear2d", "UpsamplingNearest2d"}
FOUND = {name: getattr(nn, name) for name in dir(nn)}
CLASSES = [
    n for n, c in FOUND.items() if inspect.isclass(c) and issubclass(c, nn.Module) and n not in (*ABSTRACT, *LAZY)
]


def made(name: str) -> Any:
    if name in SPECIAL:
        return SPECIAL[name]()
    cls = getattr(nn, name)
    needed = {
        p.name: ARGUMENTS[p.name]
        for p in inspect.signature(cls.__init__).parameters.values()
        if p.name in ARGUMENTS and (p.default is p.empty or p.name in ("n_layer", "depth", "dropout"))
    }
    return cls(**needed)


def floats(*shape: int) -> Tensor:
    return Tensor(np.random.default_rng(len(shape)).random(shape, np.float32))


def inputs() -> Iterator[tuple[Tensor, ...]]:
    integers = Tensor(np.array([[1, 2, 3], [3, 0, 1]], np.int32))
    for shape in ((2, 4), (2, 4, 6), (2, 4, 6, 6), (2, 4, 6, 6, 6), (2, 3, 8, 8), (2, 3, 4)):
        yield (floats(*shape),)
    yield (integers,)
    yield floats(2, 4), Tensor(np.array([1, 2], np.int32))
    for shape in ((2, 4), (2, 3, 4)):
        x = floats(*shape)
        yield x, 1 - x
        yield x, 1 - x, x * x
    yield floats(2, 4), floats(4), Tensor(np.array([1.0, -1.0], np.float32))
    yield floats(2, 4), Tensor(np.array([[1, -1, -1, -1], [2, 0, -1, -1]], np.int32))
    steps = np.full(2, 3, np.int32)
    yield floats(6, 2, 4).log_softmax(-1), Tensor(np.ones((2, 2), np.int32)), Tensor(steps + 1), Tensor(steps - 1)


def called(f: Any, x: tuple[Any, ...]) -> Any:
    """The values of a call, or the class of its error."""
    found = f(*x)
    return [t.numpy() for t in found if t is not None] if isinstance(found, (tuple, list)) else [found.numpy()]


def other(value: Any) -> Any:
    """Another value of this kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value * 0.5 + 0.125
    if isinstance(value, tuple) and value and all(type(v) is int for v in value):
        return tuple([v + 1 for v in value])
    if isinstance(value, str):
        words = ("mean", "sum", "none", "zeros", "reflect", "tanh", "relu", "gelu", "nearest", "bilinear")
        return words[(words.index(value) + 1) % len(words)] if value in words else None
    if isinstance(value, Tensor) and value.dtype.is_float:
        return type(value)(value.numpy() * 0.5 + 0.125)
    return None


def attributes(module: nn.Module) -> Iterator[tuple[nn.Module, str, Any]]:
    for m in module.modules():
        for name, value in [("training", m.training), *vars(m).items()]:
            if not name.startswith("__") and (new := other(value)) is not None:
                yield m, name, new


def outcome(f: Any, x: tuple[Any, ...]) -> Any:
    try:
        return called(f, x)
    except (UserError, AssertionError, TypeError, ValueError, IndexError, ZeroDivisionError, AttributeError) as error:
        return type(error).__name__


def first_input(module: Any) -> tuple[Tensor, ...] | None:
    for x in inputs():
        if not isinstance(outcome(module, x), str):
            return x
    return None


DRAWS = {"RReLU", "FractionalMaxPool2d", "FractionalMaxPool3d"}  # other numbers inside jit than outside


@pytest.mark.parametrize("name", thinned(CLASSES, test=8, ci=6))
def test_every_attribute_of_a_module_is_guarded(name: str) -> None:
    module = made(name)
    module.train("Norm" in name)  # elsewhere training draws
    with no_grad():
        x = first_input(module)
        if x is None or name in DRAWS or outcome(jit(module), x) == "JitError":
            pytest.skip("takes other inputs, draws, or reads values")
        f = jit(module)
        called(f, x)
        for m, attribute, new in list(attributes(module)):
            if "Dropout" in name and attribute == "training":
                continue
            assert not isinstance(outcome(f, x), str)  # captured
            before = getattr(m, attribute)
            setattr(m, attribute, new)
            state = {k: t.numpy() for k, t in module.state_dict().items()}
            expected = outcome(module, x)
            module.load_state_dict(state)
            got = outcome(f, x)
            if isinstance(expected, str) or isinstance(got, str):
                assert got in (expected, "JitError"), attribute
            else:
                for a, b in zip(got, expected, strict=True):
                    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5, err_msg=attribute)
            setattr(m, attribute, before)


def test_most_modules_are_walked() -> None:
    with no_grad():
        left = [n for n in CLASSES if n not in CONFIGURED and first_input(made(n)) is None]
    assert len(left) < 12, left


# -- containers --------------------------------------------------------------------------------------------------------


def scale(n: float) -> nn.Linear:
    layer = nn.Linear(2, 2, bias=False)
    layer.load_state_dict({"weight": np.eye(2, dtype=np.float32) * n})
    return layer


class Holder(nn.Module):
    def __init__(self) -> None:
        self.layers = nn.ModuleList([scale(2), scale(3)])
        self.named = nn.ModuleDict({"a": scale(5)})
        self.plain = [scale(7)]
        self.weights = nn.ParameterList([nn.Parameter([11.0])])
        self.factors = nn.ParameterDict({"a": nn.Parameter([13.0])})

    def forward(self, x: Tensor) -> Tensor:
        for m in (*self.layers, *self.named.values(), *self.plain):
            x = m(x)
        for w in (*self.weights, *self.factors.values()):
            x = x * w
        return x


CONTAINERS: list[Callable[[Any], Any]] = [
    lambda h: h.layers.append(scale(2)),
    lambda h: h.layers.insert(0, scale(2)),
    lambda h: h.layers.extend([scale(2)]),
    lambda h: h.layers.__setitem__(0, scale(4)),
    lambda h: h.layers.__delitem__(0),
    lambda h: h.named.update({"b": scale(2)}),
    lambda h: h.named.__setitem__("a", scale(2)),
    lambda h: h.named.pop("a"),
    lambda h: h.named.clear(),
    lambda h: h.plain.append(scale(2)),
    lambda h: h.weights.append(nn.Parameter([2.0])),
    lambda h: h.factors.update({"b": nn.Parameter([2.0])}),
    lambda h: h.register_forward_hook(lambda m, args, y: y * 2),
    lambda h: h.layers[0].register_forward_pre_hook(lambda m, args: args[0] * 2),
    lambda h: setattr(h.layers[0], "forward", lambda x: x * 100),
    lambda h: delattr(h.layers[0], "weight"),
    lambda h: h.layers[0].register_buffer("weight2", Tensor([1.0])),
]


@pytest.mark.parametrize("change", range(len(CONTAINERS)))
@pytest.mark.parametrize("whole", [False, True])
def test_a_tree_that_changes_is_seen(change: int, whole: bool) -> None:
    holder = Holder()
    f = jit(holder if whole else lambda x: holder(x))
    x = (floats(1, 2),)
    with no_grad():
        for _ in range(3):
            called(f, x)
        CONTAINERS[change](holder)
        for _ in range(3):
            assert str(outcome(f, x)) == str(outcome(holder, x))


# -- optimisers --------------------------------------------------------------------------------------------------------


def fit(name: str, change: Callable[[Any, list[Any]], Any], wrap: Callable[[Any], Any]) -> list[Any]:
    params = [nn.Parameter(np.array(v, np.float32)) for v in ([[1.0, -2.0], [0.5, 3.0]], [0.3, 0.7], [2.0])]
    optimiser = OPTIMISERS[name](optim, params[:2])

    def step() -> Tensor:
        optimiser.zero_grad()
        for p in params:
            p.grad = None
        loss = sum([(p * p).sum() * (i + 1) for i, p in enumerate(params)], Tensor(0.0))
        loss.backward()
        optimiser.step()
        return loss

    f = wrap(step)
    out = []
    for i in range(9):
        if i == 5:
            change(optimiser, params)
        out.append(f().item())
    return [*out, *[p.tolist() for p in params]]


def setting(name: str, how: str) -> Callable[[Any, list[Any]], Any]:
    def change(o: Any, params: list[Any]) -> None:
        group, value = o.param_groups[0], CHANGED[name]
        if how == "item":
            group[name] = value
        elif how == "update":
            group.update({name: value})
        elif how == "or":
            group |= {name: value}
        elif how == "reversed":
            group.pop(name)
            group.setdefault(name, value)

    return change


CHANGES: dict[str, Callable[[Any, list[Any]], Any]] = {
    "a further group": lambda o, p: o.add_param_group({"params": [p[2]]}),
    "a further group of another rate": lambda o, p: o.add_param_group({"params": [p[2]], "lr": 0.3}),
    "a parameter put into a group": lambda o, p: o.param_groups[0]["params"].append(p[2]),
    "a parameter taken out of a group": lambda o, p: o.param_groups[0]["params"].pop(),
    "a parameter in place of another": lambda o, p: o.param_groups[0]["params"].__setitem__(1, p[2]),
    "a frozen parameter": lambda o, p: p[0].requires_grad_(False),
    "a frozen parameter, by the attribute": lambda o, p: setattr(p[1], "requires_grad", False),
    "a group taken out": lambda o, p: (o.add_param_group({"params": [p[2]]}), o.param_groups.pop(0)),
    "a hook on a gradient": lambda o, p: p[0].register_hook(lambda g: g * 0.5),
    "a hook after a gradient": lambda o, p: p[0].register_post_accumulate_grad_hook(lambda t: t.grad.mul_(0.5)),
    "a parameter of other values": lambda o, p: p[0].data.mul_(0.5),
}
PLAIN = [n for n in OPTIMISERS if "," not in n]
SETTINGS = [
    (name, key, how)
    for n, name in enumerate(OPTIMISERS)
    for key in OPTIMISERS[name](optim, [nn.Parameter(np.ones((2, 2), np.float32))]).param_groups[0]
    if key in CHANGED and not (name == "Adafactor" and key == "eps")  # two numbers there
    for how in (("item", "update", "or", "reversed")[(n + len(key)) % 4],)
]


@pytest.mark.parametrize("setting_of", thinned(SETTINGS, test=8, ci=6), ids=", ".join)
def test_every_setting_of_an_optimiser_is_guarded(setting_of: tuple[str, str, str]) -> None:
    name, key, how = setting_of
    change = setting(key, how)
    np.testing.assert_equal(_close(fit(name, change, jit), expected := fit(name, change, lambda f: f)), expected)


@pytest.mark.parametrize("pair", thinned([(n, c) for c in CHANGES for n in PLAIN], test=8, ci=6), ids=", ".join)
def test_what_an_optimiser_trains_is_guarded(pair: tuple[str, str]) -> None:
    name, change = pair
    expected = fit(name, CHANGES[change], lambda f: f)
    np.testing.assert_equal(_close(fit(name, CHANGES[change], jit), expected), expected)


def _close(got: Any, expected: Any) -> Any:
    if isinstance(expected, list):
        return [_close(a, b) for a, b in zip(got, expected, strict=True)]
    return expected if np.isclose(got, expected, rtol=1e-4, atol=1e-6) else got


# -- modes -------------------------------------------------------------------------------------------------------------


def test_modes_are_guarded() -> None:
    weight = nn.Parameter([2.0])
    f = jit(lambda x: (x * weight, an.zeros(1).device, weight.requires_grad, an.is_grad_enabled()))
    for n in range(12):
        with an.set_grad_enabled(n % 3 == 0):
            y, device, wants, enabled = f(Tensor([1.0]))
        assert (y.tolist(), device, wants, enabled) == ([2.0], an.default_device(), True, n % 3 == 0)
        assert y.requires_grad is (n % 3 == 0)
    for m in (True, False, True):
        weight.requires_grad_(m)
        for _ in range(3):
            with no_grad():
                assert f(Tensor([1.0]))[2] is m


# -- code that has no name, or one of Python's ------------------------------------------------------------------------

CODE = """
scale = 2.0
class Model:
    def __init__(self):
        self.n = 1.0
    def __call__(self, x):
        return x * self.n
    def method(self, x):
        return x * self.n * scale
class Slots:
    __slots__ = ("n",)
    def __init__(self):
        self.n = 1.0
    def __call__(self, x):
        return x * self.n
def function(x):
    return x * scale
"""


@pytest.mark.parametrize("name", [None, "profile", "code", "builtins", "own"])
def test_code_is_guarded_though_its_module_has_no_name_or_that_of_a_module_of_python(
    name: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType(name or "")
    names = vars(module) if name else {}
    if name != "builtins":
        module.__file__ = f"/somewhere/{name}.py"
        monkeypatch.setitem(sys.modules, str(name), module)
    exec(compile(CODE, "own.py", "exec"), names)
    model, slots = names["Model"](), names["Slots"]()
    calls = [
        *(model, slots, model.method, names["function"], lambda x: model(x) + slots(x)),
        lambda x: model.method(x) + names["function"](x),
    ]
    captured = [jit(f) for f in calls]
    for n in range(9):
        if n % 3 == 0:
            model.n, slots.n, names["scale"] = n + 1.0, n + 2.0, n + 3.0
        for f, g in zip(calls, captured, strict=True):
            assert g(Tensor([1.0])).item() == f(Tensor([1.0])).item()


# -- what is frozen ------------------------------------------------------------------------------------------------


class Asking(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(an.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        return x * (2 if self.weight.requires_grad else 3)


def asked(name: str) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """A function whose result tells whether a tensor requires a gradient, and that tensor."""
    module, asking = nn.Linear(1, 1), Asking()
    weight, held = module.weight, [module.weight]
    functions: dict[str, tuple[Callable[[Tensor], Tensor], Tensor]] = {
        "a variable": (lambda x: x * (2 if weight.requires_grad else 3), weight),
        "an item": (lambda x: x * (2 if held[0].requires_grad else 3), weight),
        "a list": (lambda x: x * (2 if [p for p in held if p.requires_grad] else 3), weight),
        "an attribute": (lambda x: x * (2 if module.weight.requires_grad else 3), weight),
        "parameters": (lambda x: x * (2 if all(p.requires_grad for p in module.parameters()) else 3), weight),
        "a module of one's own": (asking, asking.weight),
    }
    return functions[name]


@pytest.mark.parametrize(
    "name", ["a variable", "an item", "a list", "an attribute", "parameters", "a module of one's own"]
)
def test_whether_a_tensor_is_frozen_is_guarded(name: str) -> None:
    """A function that asks for `requires_grad` gets the present answer, also for tensors that it does not compute
    with."""
    function, tensor = asked(name)
    f = jit(function)
    for i in range(10):
        tensor.requires_grad_(not 3 <= i < 7)
        with no_grad():
            assert f(an.ones(1)).item() == (3 if 3 <= i < 7 else 2)
    assert len(f.recaptures) == 2, "frozen, and unfrozen: no other call was captured again"


@pytest.mark.parametrize("made", ["SGD", "Adam", "RMSprop", "Adagrad"])
def test_what_is_unfrozen_is_trained_again(made: str) -> None:
    """A frozen parameter that no kernel reads, as where a loss is a sum, is looked at by its capture all the same."""

    def trained(wrap: Callable[..., Any]) -> list[list[float]]:
        p, q = nn.Parameter(an.tensor([1.0, 2.0])), nn.Parameter(an.tensor([1.0, -1.0]))
        optimiser = getattr(optim, made)([p, q], lr=0.1)

        def step() -> Tensor:
            optimiser.zero_grad()
            ((p**2).sum() + (q**2).sum()).backward()
            optimiser.step()
            return p.sum().detach()

        run, found = wrap(step), []
        for i in range(12):
            q.requires_grad_(not 3 <= i < 7)
            run()
            found.append(q.tolist())
        return found

    np.testing.assert_allclose(trained(jit), trained(lambda f: f), rtol=1e-6)


@pytest.mark.parametrize("known", [0, 4])
@pytest.mark.parametrize("view", ["st[1:3]", "st.detach()[1:3]", "st.reshape(2, 2)[1]", "st[:2].view(2)", "st.T[2:]"])
def test_an_argument_sees_what_the_function_changes(view: str, known: int) -> None:
    """A view of a tensor that the function changes in place shows the new values, whether or not calls with other
    tensors were captured before."""

    def seen(wrap: Callable[..., Any]) -> list[list[float]]:
        st = an.zeros(4)

        def f(x: Tensor) -> Tensor:
            st.add_(1)
            return x * 2

        run = wrap(f)
        for _ in range(known):
            run(an.ones(2))
        return [run(eval(view, {"st": st})).tolist() for _ in range(5)]

    assert seen(jit) == seen(lambda f: f)


# -- attributes that are asked for by their names ----------------------------------------------------------------------


class Thing:
    """An object with attributes."""


def tried(thing: Any) -> Callable[[Tensor], Tensor]:
    def function(x: Tensor) -> Tensor:
        try:
            return x * thing.k
        except AttributeError:
            return x * 3

    return function


class Scaled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * getattr(self, "scale", 1.0)


def hooked(known: dict[str, float]) -> Callable[[Tensor], Tensor]:
    net = nn.Sequential(nn.Identity())
    net[0].register_forward_hook(lambda module, given, out: out * known["k"])
    return lambda x: net(x)


def asking(name: str) -> tuple[Callable[[Tensor], Tensor], Callable[[], Any]]:
    """A function, and what changes its result."""
    thing, inner, there, scaled, known = Thing(), Thing(), Thing(), Scaled(), {"k": 2.0}
    there.k, inner.thing = 2.0, there  # type: ignore[attr-defined]
    rows: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[], Any]]] = {
        "getattr": (lambda x: x * getattr(there, "k"), lambda: setattr(there, "k", 5.0)),  # noqa: B009
        "getattr of an attribute": (lambda x: x * getattr(inner.thing, "k", 1), lambda: setattr(there, "k", 5.0)),  # type: ignore[attr-defined]
        "a default": (lambda x: x * getattr(thing, "k", 7.0), lambda: setattr(thing, "k", 5.0)),
        "hasattr": (lambda x: x * (2 if hasattr(thing, "k") else 3), lambda: setattr(thing, "k", 5.0)),
        "hasattr of what goes": (lambda x: x * (2 if hasattr(there, "k") else 3), lambda: delattr(there, "k")),
        "try": (tried(thing), lambda: setattr(thing, "k", 5.0)),
        "a module": (scaled, lambda: setattr(scaled, "scale", 4.0)),
        "a hook": (hooked(known), lambda: known.update(k=5.0)),
    }
    return rows[name]


@pytest.mark.parametrize(
    "name",
    ["getattr", "getattr of an attribute", "a default", "hasattr", "hasattr of what goes", "try", "a module", "a hook"],
)
def test_what_is_asked_for_by_name_is_guarded(name: str) -> None:
    function, change = asking(name)
    f = jit(function)
    for _ in range(4):
        old = f(an.ones(1)).item()
    assert any(c is not None for c in f.captures.values())
    change()
    for _ in range(4):
        want = function(an.ones(1)).item()
        assert f(an.ones(1)).item() == want != old


_SCALE = 0.0


class _Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = 0.0

    def forward(self, x: Tensor) -> Tensor:
        return x / self.scale


@pytest.mark.parametrize("where", ["argument", "nest", "global", "attribute"])
def test_a_zero_below_zero_is_another_number(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, model = Tensor([1.0, 2.0]), _Scaled()
    calls: dict[str, Callable[[float], Tensor]] = {
        "argument": jit(lambda s: x / s),
        "nest": jit(lambda s: x / s["a"][0]),
        "global": jit(lambda s: x / _SCALE),
        "attribute": jit(lambda s: model(x)),
    }
    found = []
    zeros = [0.0, 0.0, 0.0, -0.0, -0.0, 1.0, 0.0, 1.0, -0.0, 0.0, 1.0]
    for s in zeros:
        monkeypatch.setitem(globals(), "_SCALE", s)
        model.scale = s
        found.append(calls[where]({"a": (s,)} if where == "nest" else s if where == "argument" else 1.0).tolist()[0])
    assert found == [1.0 if s else float("-inf") if str(s) == "-0.0" else float("inf") for s in zeros]
