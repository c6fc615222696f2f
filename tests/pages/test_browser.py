"""Exported pages in a real browser, whose WebGPU runs on the CPU: every kind of page, values beside the cpu device's,
training, damaged exports, a lost GPU, memory, and no network beyond the folder.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anneal as an
from anneal.codegen import Target
from anneal.pages import PROFILES, DeviceProfile, export, of_gpt2, of_onnx
from anneal.tensor import Tensor, no_grad, tree_leaves, tree_map
from anneal.tensor.io import safe_load
from tests.pages.helpers import recipe_of, served, spoilt, too_large, write
from tests.pages.test_export import integers
from tests.tiers import thinned
from tests.web.test_browser import AXE, RULES, browser  # noqa: F401

pytestmark = pytest.mark.ci
READY = "html[data-ready], #badge.bad"
PAGES = ("mlp", "conv", "nanogpt", "llama", "describe", "form")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of each kind."""
    place = tmp_path_factory.mktemp("pages")
    for name in ("mlp", "conv", "nanogpt", "llama"):
        write(recipe_of(name)[1], place / name, name=name)
    _, recipe = recipe_of("conv")
    model: Any = recipe.functions["predict"]
    page = {"kind": "describe", "size": [16, 16], "labels": [f"class {n}" for n in range(10)]}
    export(lambda x: model(x.mean(1, keepdim=True)), Tensor.ones(1, 3, 16, 16), place / "describe", page=page)
    export(lambda x: (x * 2, x.sum()), Tensor(np.arange(4, dtype=np.float32)), place / "form", name="form")
    (place / "empty.html").write_text("<!doctype html><html lang=en><title>empty</title>")
    return place


@pytest.fixture(scope="module")
def site(folder: Path) -> Iterator[str]:
    with served(folder) as url:
        yield url


@pytest.fixture
def page(browser: Any, site: str) -> Iterator[Any]:  # noqa: F811
    """An empty page beside the exports; what a page asks for beyond them, and an error in its console, fail a test."""
    context = browser.new_context()
    context.set_default_timeout(60_000)
    found = context.new_page()
    wrong: list[str] = []
    found.on("pageerror", lambda e: wrong.append(str(e)))
    found.on("console", lambda m: wrong.append(m.text) if m.type == "error" and "404" not in m.text else None)
    found.on("request", lambda r: wrong.append(r.url) if not r.url.startswith((site, "blob:", "data:")) else None)
    found.goto(f"{site}/empty.html")
    yield found
    context.close()
    assert wrong == []


def opened(page: Any, url: str) -> str:
    """Go to a page, and wait until it is checked; what its badge says."""
    page.goto(url)
    page.wait_for_selector(READY, state="attached")
    return str(page.inner_text("#badge"))


def used(page: Any, url: str, body: str, given: Any = None) -> Any:
    """What JavaScript gives that uses the `model` of a folder and what is `given`."""
    script = "async ([url, given]) => { const { load } = await import(`${url}/anneal.js`); "
    return page.evaluate(script + f"const model = await load(`${{url}}/`); {body} }}", [url, given])


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_right_and_accessible(name: str, scheme: str, page: Any, site: str) -> None:
    page.emulate_media(color_scheme=scheme)
    assert opened(page, f"{site}/{name}/").startswith("checked: worst error")
    if not AXE.is_file():
        pytest.skip("needs axe-core: `npm ci` in anneal/web/app, as .ci/run does")
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("rules => axe.run(document, { runOnly: rules })", RULES)
    assert [(v["id"], [n["target"] for n in v["nodes"]]) for v in found["violations"]] == []


def test_a_digit_is_drawn_by_keys(page: Any, site: str) -> None:
    opened(page, f"{site}/conv/")
    page.locator("canvas").focus()
    before = page.inner_text("table")
    for key in ("Space", "ArrowDown", "Space", "ArrowRight", "Space"):
        page.keyboard.press(key)
    page.wait_for_selector("table")
    until(lambda: page.inner_text("table") != before)


def until(holds: Callable[[], bool], tries: int = 600) -> None:
    import time

    for _ in range(tries):
        if holds():
            return
        time.sleep(0.05)
    raise AssertionError("it never came")


def test_spirals_are_learnt(page: Any, site: str, tmp_path: Path) -> None:
    opened(page, f"{site}/mlp/")
    page.get_by_role("button", name="Train").click()
    said = page.locator("main [role=status]")
    until(lambda: "step" in said.inner_text() and int(said.inner_text().split()[1].rstrip(",")) >= 100)
    page.get_by_role("button", name="Pause").click()
    with page.expect_download() as waited:
        page.get_by_role("button", name="Save").click()
    waited.value.save_as(tmp_path / "state")
    assert safe_load(tmp_path / "state")["first.weight"].shape == (64, 2)
    page.locator("input[type=file]").set_input_files(tmp_path / "state")
    page.get_by_role("button", name="Start anew").click()
    until(lambda: said.inner_text() == "not trained yet")


@pytest.mark.parametrize("name", ["nanogpt", "llama"])
def test_a_text_is_written(name: str, page: Any, site: str) -> None:
    opened(page, f"{site}/{name}/")
    page.get_by_role("button", name="Write").click()
    until(lambda: page.inner_text("pre").startswith("ROMEO:") and len(page.inner_text("pre")) > 20)
    page.locator("textarea").fill("\u2603")
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("button", name="Write").click()
    until(lambda: "does not know \u2603" in page.locator("main [role=status]").inner_text())


def test_a_picture_is_described(page: Any, site: str, tmp_path: Path) -> None:
    from anneal.training import png

    (tmp_path / "p.png").write_bytes(png(np.full((20, 30, 3), 90, np.uint8)))
    opened(page, f"{site}/describe/")
    (tmp_path / "no.png").write_bytes(b"no picture")
    chosen = page.locator("input[type=file]")
    # an answer takes a second here: that of the first picture comes when the second one is refused
    page.evaluate(
        "() => { const map = GPUBuffer.prototype.mapAsync; GPUBuffer.prototype.mapAsync = async function (...given) "
        "{ await map.apply(this, given); await new Promise((done) => setTimeout(done, 1000)); window.read = true; } }"
    )
    chosen.set_input_files(tmp_path / "p.png")
    page.wait_for_timeout(100)
    chosen.set_input_files(tmp_path / "no.png")
    page.wait_for_selector("main [role=alert]")
    page.wait_for_function("() => window.read")
    page.wait_for_timeout(100)
    assert page.locator("main [role=alert]").count() == 1
    chosen.set_input_files(tmp_path / "p.png")
    page.wait_for_selector("meter")
    assert page.locator("main [role=alert]").count() == 0


def test_gpt2_writes_from_the_visitors_files(page: Any, site: str, folder: Path, tmp_path: Path) -> None:
    from examples.gpt2 import Decoder, Sampling, Tokenizer, read_checkpoint
    from tests.cli.test_gpt2 import make

    make(tmp_path)
    model = read_checkpoint(tmp_path)
    write(of_gpt2(model.config), folder / "gpt2", weights="visitor")
    assert (folder / "gpt2/weights.safetensors").stat().st_size < 1000
    page.goto(f"{site}/gpt2/")
    page.locator("input[type=file]").set_input_files(tmp_path / "vocab.json")
    until(lambda: "choose model.safetensors and merges.txt as well" in page.inner_text("main"))
    page.locator("input[type=file]").set_input_files(
        [tmp_path / n for n in ("model.safetensors", "vocab.json", "merges.txt")]
    )
    page.wait_for_selector(READY, state="attached")
    assert "the weights are yours" in page.inner_text("#badge")
    page.locator("textarea").fill("Hello")
    page.locator("input[type=number]").fill("0")
    page.get_by_role("button", name="Write").click()
    tokenizer = Tokenizer.read(tmp_path / "vocab.json", tmp_path / "merges.txt")
    told = list(Decoder(model, Sampling(greedy=True)).generate(tokenizer.encode("Hello"), 8))
    wanted = "Hello" + bytes(told).decode("utf-8", "replace")
    until(lambda: len(page.evaluate("document.querySelector('pre').textContent")) > len(wanted))
    assert page.evaluate("document.querySelector('pre').textContent").startswith(wanted[:-3])


def test_one_file_has_all_in_it(page: Any, tmp_path: Path, site: str, folder: Path) -> None:
    write(recipe_of("nanogpt")[1], folder / "one.html", single_file=True, weights="int8")
    assert opened(page, f"{site}/one.html").startswith("checked: worst error")


def test_it_opens_again_without_a_network(browser: Any, folder: Path) -> None:  # noqa: F811
    context = browser.new_context()
    page = context.new_page()
    with served(folder / "form") as url:
        opened(page, f"{url}/")
        page.wait_for_selector("html[data-kept]", state="attached")
        page.evaluate("navigator.serviceWorker.ready.then(() => true)")
        context.set_offline(True)
        assert opened(page, f"{url}/").startswith("checked")
    context.close()


# -- values ------------------------------------------------------------------------------------------------------------

# The other examples' forwards are as much as their kernels: a longer tier runs them.
EXAMPLES = ("makemore-gru", "vit", "resnet9", "diffusion", "dit", "meanflow", "dynmlp", "makemore-bigram",
            "makemore-mlp", "makemore-cnn", "makemore-rnn", "makemore-gpt")  # fmt: skip


@pytest.mark.parametrize("name", thinned(EXAMPLES, test=6, ci=6))
def test_an_example_gives_the_cpu_devices_values(name: str, page: Any, site: str, folder: Path) -> None:
    _, recipe = recipe_of(name, batch=2)
    write(recipe, folder / name)
    (function,), (args,) = recipe.functions.values(), recipe.examples.values()
    rng = np.random.default_rng(3)  # other values than those that travel with the page

    def other(a: Any) -> Any:
        return Tensor(rng.normal(0, 1, a.shape).astype(np.float32)) if isinstance(a, Tensor) and a.dtype.is_float else a

    fresh = tree_map(other, args)
    with no_grad():
        wanted = function(*fresh).numpy()
    body = """
      const inputs = {};
      model.plan.programs[0].functions.predict.inputs.forEach((p, n) => (inputs[p.name] = given[n]));
      const found = await model.run(inputs);
      return Object.values(found).map((a) => Array.from(a.data));
    """
    (found,) = used(
        page, f"{site}/{name}", body, [t.numpy().ravel().tolist() for t in tree_leaves(fresh) if isinstance(t, Tensor)]
    )
    assert np.abs(np.array(found).reshape(wanted.shape) - wanted).max() <= 1e-4 * max(1.0, np.abs(wanted).max())


# nanogpt's own rate is too large for batches of two: after a hundred steps the cpu's kernels in C and NumPy's are 0.09
# apart there, by rounding alone.
@pytest.mark.parametrize(
    ("name", "batch", "lr", "steps"),
    [
        ("mlp", 32, None, 100),
        ("conv", 8, None, 30),
        pytest.param("conv", 8, None, 100, marks=pytest.mark.deep),
        pytest.param("nanogpt", 2, 1e-3, 100, marks=pytest.mark.deep),
    ],
)
def test_training_for_many_steps_is_ours(
    name: str, batch: int, lr: float | None, steps: int, page: Any, site: str, folder: Path
) -> None:
    training, recipe = recipe_of(name, True, batch, lr)
    write(recipe, folder / f"{name}-train")
    batches = [[t.numpy() for t in training.next_batch()] for _ in range(steps)]
    body = """
      const f = model.plan.programs[0].functions.train;
      const losses = [];
      for (const batch of given) {
        const inputs = Object.fromEntries(f.inputs.map((p, n) => [p.name, batch[n]]));
        losses.push((await model.call("train", inputs))[f.outputs[0].name].data[0]);
      }
      return [losses, Array.from(await model.read(model.plan.programs[0].state[0])), model.plan.programs[0].state[0]];
    """
    given = [[a.ravel().tolist() for a in batch] for batch in batches]
    losses, weight, of = used(page, f"{site}/{name}-train", body, given)
    ours = [training.update(*map(Tensor, batch)).item() for batch in batches]
    assert np.abs(np.array(losses) - ours).max() <= 1e-3 * max(ours)
    mine = dict(training.model.named_parameters()).get(of)
    if mine is not None:
        assert np.abs(np.array(weight) - mine.numpy().ravel()).max() <= 1e-3 * np.abs(mine.numpy()).max()


@pytest.mark.parametrize("name", ["nanogpt", "llama"])
def test_kept_keys_and_values_give_what_the_whole_text_does(name: str, page: Any, site: str) -> None:
    training, _ = recipe_of(name)
    tokens = list(range(3, 33))
    body = """
      const whole = new Int32Array(64);
      whole.set(given.slice(0, 9));
      let out = (await model.call("begin", { tokens: whole, count: [9], blocks: 1 })).out;
      for (let place = 9; place < given.length; place++)
        out = (await model.call("go_on", { token: [given[place]], place: [place], blocks: (place >> 4) + 1 })).out;
      return Array.from(out.data);
    """
    found = used(page, f"{site}/{name}", body, tokens)
    with no_grad():
        wanted = training.model.eval()(Tensor(np.array([tokens], np.int32))).numpy()[0, -1]
    assert np.abs(np.array(found) - wanted).max() <= 1e-4 * np.abs(wanted).max()


def test_random_numbers_are_others_in_each_run(page: Any, site: str, folder: Path) -> None:
    export(lambda x: x + an.randn(3), Tensor.ones(3), folder / "random")
    body = "const run = async () => Array.from((await model.run({ x: [0, 0, 0] })).out.data);"
    checked, one, two, again = used(
        page, f"{site}/random", f"{body} const checked = await model.check(); const both = [await run(), await run()];"
        " await model.reset(); return [checked.ok, ...both, await run()];",
    )  # fmt: skip
    assert checked
    assert one == again != two


def test_an_onnx_model_gives_the_cpu_devices_values(page: Any, site: str, folder: Path, tmp_path: Path) -> None:
    from anneal import onnx
    from tests.onnx.test_models import mlp

    (tmp_path / "m.onnx").write_bytes(mlp())
    model = onnx.load(tmp_path / "m.onnx", "cpu")
    shape = [d if isinstance(d, int) else 2 for d in model.inputs[0].shape or ()]
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    write(of_onnx(model, {model.inputs[0].name: x}), folder / "onnx")
    assert opened(page, f"{site}/onnx/").startswith("checked: worst error")
    ids = np.array([[4, 0, 49, 7, 7, 1]])
    write(of_onnx(onnx.load(integers(1), "cpu"), {"ids": ids}), folder / "integers")
    body = "const found = await model.run({ ids: given }); return Object.values(found).map((a) => [...a.data]);"
    wanted = onnx.load(integers(1), "cpu").run({"ids": ids[:, ::-1]})
    found = used(page, f"{site}/integers", body, ids[0, ::-1].tolist())
    assert found == [wanted["best"].tolist(), wanted["next"].tolist()[0]]


# -- faults ------------------------------------------------------------------------------------------------------------


def changed(act: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    """A damage to model.json."""

    def damage(folder: Path) -> None:
        plan = json.loads((folder / "model.json").read_text())
        act(plan)
        (folder / "model.json").write_text(json.dumps(plan))

    return damage


def bytes_of(name: str, act: Callable[[bytearray], Any]) -> Callable[[Path], None]:
    """A damage to a file."""

    def damage(folder: Path) -> None:
        data = bytearray((folder / name).read_bytes())
        act(data)
        (folder / name).write_bytes(data)

    return damage


def flip(data: bytearray) -> None:
    data[len(data) // 2] ^= 1


def cut(data: bytearray) -> None:
    del data[-9:]


def first(plan: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(iter(plan["programs"][0]["functions"].values()))
    return found


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "no plan": (lambda f: (f / "model.json").unlink(), "model.json is missing"),
    "no kernels": (lambda f: (f / "kernels.wgsl").unlink(), "kernels.wgsl is missing"),
    "no weights": (lambda f: (f / "weights.safetensors").unlink(), "weights.safetensors is missing"),
    "a plan cut short": (bytes_of("model.json", cut), "model.json is damaged, it is no JSON"),
    "weights cut short": (bytes_of("weights.safetensors", cut), "weights.safetensors is cut short"),
    "weights too long": (bytes_of("weights.safetensors", lambda d: d.extend(b"more")), "it has more than"),
    "a bit of the weights": (bytes_of("weights.safetensors", flip), "weights.safetensors is damaged: its bytes"),
    "a bit of the kernels": (bytes_of("kernels.wgsl", flip), "kernels.wgsl is damaged: its bytes"),
    "another format": (changed(lambda p: p.update(format="x")), "is no plan of a page"),
    "a later version": (changed(lambda p: p.update(version=2)), "model.json is of version 2"),
    "no programs": (changed(lambda p: p.update(programs=[])), "it has no program"),
    "no files": (changed(lambda p: p.pop("files")), "it lists no files"),
    "a strange file": (changed(lambda p: p["files"].update({"../x": {"bytes": 1, "sha256": [""]}})), 'called "../x"'),
    "hashes of another": (changed(lambda p: p["files"]["kernels.wgsl"].update(sha256=[])), "has 0 hashes"),
    "a source outside": (changed(lambda p: p["sources"].__setitem__(0, [0, 10**9])), "outside kernels.wgsl"),
    "a buffer of no size": (changed(lambda p: p["programs"][0]["buffers"].__setitem__(0, 3)), "buffer 0 has 3 bytes"),
    "a huge buffer": (changed(lambda p: p["programs"][0]["buffers"].__setitem__(0, 1 << 33)), "buffer 0 has 85899"),
    "a call of no kernel": (changed(lambda p: first(p)["calls"][0].__setitem__(0, 99)), "is of no kernel"),
    "a call of no buffer": (changed(lambda p: first(p)["calls"][0].__setitem__(1, [-1, 0])), "binds a buffer that is"),
    "an input too large": (changed(lambda p: first(p)["inputs"][0].update(room=[1 << 30])), "does not fit its buffer"),
    "a grid too wide": (changed(lambda p: first(p)["calls"][0].__setitem__(2, [1 << 20, 1, 1])), "has no grid"),
    "state of no weight": (changed(lambda p: p["programs"][0].update(state=["x"])), "state x is no weight"),
}  # fmt: skip


def test_damaged_exports_are_told_in_words(page: Any, site: str, folder: Path) -> None:
    assert len(DAMAGES) >= 20
    wanted = {}
    w = (Tensor.ones(4, 4) * 3).realize()
    export(lambda x: (x @ w).relu(), Tensor.ones(2, 4), folder / "sound", profiles=["browser"])
    for n, (damage, said) in enumerate(DAMAGES.values()):
        shutil.copytree(folder / "sound", folder / f"damaged{n}")
        damage(folder / f"damaged{n}")
        wanted[f"{site}/damaged{n}/"] = said
    script = """async ([from, urls]) => {
      const { load, PageError } = await import(`${from}/anneal.js`);
      const said = {};
      for (const url of urls) said[url] = await load(url).then(() => "it loaded", (e) => (e instanceof PageError ? "" : "no PageError: ") + e.message);
      return said;
    }"""
    found = page.evaluate(script, [f"{site}/sound", list(wanted)])
    assert {u: m for u, m in found.items() if wanted[u] not in m or m.startswith("no PageError")} == {}


def test_a_page_knows_its_plan_by_its_hash(page: Any, site: str, folder: Path) -> None:
    shutil.copytree(folder / "form", folder / "other")
    changed(lambda p: p.update(name="other"))(folder / "other")
    assert opened(page, f"{site}/other/") == "it does not run here"
    assert "is not the one that this page was exported with" in page.inner_text("main")


@pytest.mark.parametrize("place", [0.2, 0.45, 0.9])
@pytest.mark.parametrize("name", ["nanogpt", "conv"])
def test_a_wrong_kernel_is_named(name: str, place: float, page: Any, site: str, folder: Path) -> None:
    """One of the stores of one kernel is wrong, and the page names the kernel: not scores, half more of which may be
    less than what rounding is allowed."""
    place_of = folder / f"wrong-{name}-{place}"
    shutil.copytree(folder / name, place_of)
    plan = json.loads((place_of / "model.json").read_text())
    program = next(p for p in plan["programs"] if p["software"])
    (function, first), *_ = program["functions"].items()
    pack = (place_of / "kernels.wgsl").read_bytes()
    for n in range(int(place * len(first["calls"])), len(first["calls"])):
        kernel = program["kernels"][first["calls"][n][0]]
        begin, end = plan["sources"][kernel["source"]]
        if re.search(r"p0: array<(vec\d<)?f32", pack[begin:end].decode()):
            break
    spoilt(place_of, kernel["source"], too_large)
    launch = next(k for k, c in enumerate(first["calls"]) if program["kernels"][c[0]]["source"] == kernel["source"])
    found = used(page, f"{site}/{place_of.name}", "return await model.check();")
    assert not found["ok"]
    assert found["worst"] > found["allowed"]
    named = program["kernels"][first["calls"][launch][0]]["name"]
    assert found["kernel"] == f"{named}, launch {launch} of {function}"


def test_what_a_result_may_be_off_follows_from_its_ops(folder: Path) -> None:
    """Less for one product than for many layers, none for whole numbers, and no flat part of the largest magnitude."""
    off: dict[str, float] = {}
    for name in PAGES:
        check = json.loads((folder / name / "model.json").read_text())["check"]
        arrays = safe_load(folder / name / "check.safetensors")
        for function, told in check.items():
            largest = [np.abs(t.numpy()).max() for n, t in arrays.items() if n.startswith(f"{function}/out/")]
            off |= {f"{name} {function} {n}": b / largest[n] for n, b in enumerate(told["bounds"][0])}
    assert off["form run 0"] == 0, "twice a whole number is exact"
    assert 0 < off["mlp predict 0"] < off["nanogpt begin 0"] < 1e-3, off


MISTAKES = {
    "{}": "input x is f32 of shape [4], and was not given",
    "{x: [1, 2]}": "input x is f32 of shape [4], 4 numbers; 2 were given",
    "{x: [1, 2, 3, 4], y: 1}": "run has no input y; it has x",
}


def test_wrong_inputs_are_told_in_words(page: Any, site: str) -> None:
    for given, said in MISTAKES.items():
        body = f"return model.run({given}).then(() => 'ran', (e) => e.message);"
        assert said in used(page, f"{site}/form", body)
    body = "return model.call('go').then(() => 'ran', (e) => e.message);"
    assert used(page, f"{site}/form", body) == "there is no function go; there are run"


def test_the_first_variant_that_the_adapter_has_is_taken(page: Any, site: str, folder: Path) -> None:
    """SwiftShader has 10 storage buffers and subgroups of 4 threads, and neither float16 nor subgroups of 32."""
    threads = Target(subgroup=4, names_subgroups=True)
    rich = DeviceProfile(
        "rich", "", 10, target=replace(threads, workgroup_bytes=32768), features=("subgroups",), software=True
    )
    halves = replace(rich, name="halves", features=("shader-f16",))
    wide = replace(rich, name="wide", target=replace(threads, subgroup=32))
    many = replace(rich, name="many", buffers=11)
    plain = PROFILES["software"]
    for name, profiles, taken in (
        ("has", (halves, wide, many, rich, plain), "rich"),
        ("has-not", (halves, wide, many, plain), "software"),
    ):
        x = Tensor(np.arange(4096, dtype=np.float32).reshape(4, 1024) / 4096)
        export(lambda x: (x * x).sum(1), x, folder / name, profiles=[*profiles, "browser"])
        assert "subgroupShuffleXor" in (folder / name / "kernels.wgsl").read_text()
        body = "return [model.about.profile, await model.check(), Array.from((await model.run(await model.example('run'))).out.data)]"
        profile, checked, found = used(page, f"{site}/{name}", body)
        assert (profile, checked["ok"]) == (taken, True)
        assert np.allclose(found, (x.numpy() ** 2).sum(1), rtol=1e-5)
    export(lambda x: x + 1, Tensor.ones(2), folder / "none", profiles=[wide, many])
    body = "return load(given).then(() => 'it loaded', (e) => e.message)"
    found = used(page, f"{site}/has", body, f"{site}/none/")
    assert found == (
        "this adapter is too small for the model: maxStorageBuffersPerShaderStage 11 (it has 10); export it for a "
        "smaller profile, or open the page on another machine"
    )


def test_a_lost_gpu_comes_back_with_what_was_kept(page: Any, site: str) -> None:
    body = """
      const batch = await model.example("train");
      const { outputs } = model.plan.programs[0].functions.train;
      const loss = async () => (await model.call("train", batch))[outputs[0].name].data[0];
      await loss();
      await model.save();
      const wanted = await loss();
      model.engine.device.destroy();
      await new Promise((done) => setTimeout(done, 100));
      const found = await loss();
      return [wanted, found];
    """
    wanted, found = used(page, f"{site}/mlp", body)
    assert found == pytest.approx(wanted, rel=1e-6)


def test_memory_is_flat_after_a_thousand_runs(page: Any, site: str) -> None:
    body = """
      let made = 0;
      const make = GPUDevice.prototype.createBuffer;
      GPUDevice.prototype.createBuffer = function (...a) { made++; return make.apply(this, a); };
      for (let n = 0; n < 20; n++) await model.run({ x: [1, 2, 3, 4] });
      const [first, heap] = [made, performance.memory.usedJSHeapSize];
      for (let n = 0; n < 1000; n++) await model.run({ x: [1, 2, 3, n] });
      return [made - first, performance.memory.usedJSHeapSize - heap];
    """
    made, heap = used(page, f"{site}/form", body)
    assert made == 0, "a run makes no buffer"
    assert heap <= 8 << 20
