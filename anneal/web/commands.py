"""The command lines of anneal that the page may ask for: every value is checked, and none of them is a path."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anneal.training import DRAWING, MODELS, SPEAKING
from anneal.web.uploads import Uploads

DEVICES = ("auto", "cpu", "webgpu")
_RUN = re.compile(r"\w[\w.-]{0,120}")


class Wrong(Exception):
    """A job that cannot be run, with why."""


def _none(_: str) -> None:
    """No job has weights, or is a script's."""


@dataclass(frozen=True, slots=True)
class Command:
    """A job: `arguments` of `anneal`, in which {job} is the job's folder; `about` is what the page is to show."""

    kind: str
    model: str
    device: str
    arguments: tuple[str, ...]
    about: dict[str, Any]

    @property
    def text(self) -> str:
        """The command as one would type it."""
        return shlex.join(["anneal", *self.arguments])


def command(
    asked: Mapping[str, Any],
    uploads: Uploads,
    weights: Callable[[str], Path | None] = _none,
    scripts: Callable[[str], list[str] | None] = _none,
) -> Command:
    """The command for what the page asked; `weights` finds what a training, or a run's, saved, `scripts` the words of
    a script that a job recorded. Raises Wrong.
    """
    kind = asked.get("kind")
    make = _KINDS.get(kind) if isinstance(kind, str) else None
    if make is None:
        raise Wrong(f"there is no job of kind {str(kind)[:40]!r}; there is: {', '.join(_KINDS)}")
    device = asked.get("device", "auto")
    if device not in DEVICES:
        raise Wrong(f"the device is one of {', '.join(DEVICES)}")
    found = {"device": device}
    if asked.get("weights") is not None:
        found["place"] = str(_weights(asked["weights"], uploads, weights))
    model = str(asked.get("model"))
    words = _script(asked, uploads, scripts) if model.startswith("job.") or model.endswith(".py") else []
    return make({**asked, "place": None, "script": words, **found}, uploads)


def _weights(asked: Any, uploads: Uploads, weights: Callable[[str], Path | None]) -> Path:
    """The file of weights behind the id of a job, a run or an upload."""
    place = None
    if isinstance(asked, str):
        place = uploads.path(asked) if asked.startswith("upload.") else weights(asked)
    if place is None or place.suffix != ".safetensors":
        raise Wrong("these weights are not here any more; train the model again, or drop its .safetensors file")
    return place.resolve()


def _script(asked: Mapping[str, Any], uploads: Uploads, scripts: Callable[[str], list[str] | None]) -> list[str]:
    """The words of a script that is to be checked: one that a job recorded, or one that was dropped, with arguments."""
    if asked["model"].startswith("job."):
        words = scripts(asked["model"].removeprefix("job.")) or []
    else:
        path, given = uploads.path(asked["model"]), asked.get("arguments") or ""
        if not isinstance(given, str) or len(given) > 2000 or "\0" in given:
            raise Wrong("arguments are a text of at most 2,000 characters")
        try:
            words = [] if path is None else [str(path.resolve()), *shlex.split(given)]
        except ValueError as error:
            raise Wrong(f"these arguments cannot be split into words: {error}") from None
    if not words:
        raise Wrong("this script is not here any more; drop it again")
    return words


def _train(asked: dict[str, Any], _: Uploads) -> Command:
    model = _model(asked)
    words = ["train", model, "--json", "--vitals", "--device", asked["device"]]
    words += _numbers(asked, steps=(1, 10**6), batch=(1, 1 << 16), seed=(0, 2**53), samples=(0, 100))
    if asked.get("lr") is not None:
        words += ["--lr", f"{_number(asked, 'lr', 1e-12, 1e6):g}"]
    if asked["place"] is not None:
        words += ["--start", asked["place"]]
    if asked.get("bundle", True):
        words.append("--bundle")
    if model in DRAWING:
        words += ["--picture", "{job}/picture.png"]
    if model == "gpt2":
        words.append("--scratch")
    elif asked.get("bundle", True):
        words += ["--save", "{job}/weights.safetensors"]
    return _made("train", model, asked, words, "steps", "batch", "seed", "lr", "bundle", "samples", "weights")


def _time(asked: dict[str, Any], uploads: Uploads) -> Command:
    model = _traceable(asked, uploads)
    words = ["kernels", model, "--time", "--json", "--trace", "{job}/trace.json", "--device", asked["device"]]
    words += ["--step"] if asked.get("step") else []
    return _made("time", str(asked["model"]), asked, [*words, *_numbers(asked, batch=(1, 1 << 16))], "step", "batch")


def _check(asked: dict[str, Any], uploads: Uploads) -> Command:
    target = asked["script"] or [_traceable(asked, uploads)]
    flags = ("gradients",) if asked["script"] else ("step", "gradients")
    words = ["check", "--json", "--device", asked["device"], *[f"--{flag}" for flag in flags if asked.get(flag)]]
    return _made("check", str(asked["model"]), asked, [*words, "--", *target], *flags, "arguments")


def _run(asked: dict[str, Any], uploads: Uploads) -> Command:
    model = _traceable(asked, uploads)
    if not model.endswith(".onnx"):
        raise Wrong("only an ONNX file is run")
    words = ["onnx", "run", model, "--json", "--time", "--device", asked["device"]]
    return _made("run", str(asked["model"]), asked, words)


def _sample(asked: dict[str, Any], _: Uploads) -> Command:
    prompt = asked.get("prompt")
    if not isinstance(prompt, str) or len(prompt) > 20_000 or "\0" in prompt:
        raise Wrong("a prompt is a text of at most 20,000 characters")
    model = asked.get("model", "gpt2")
    if model != "gpt2" and model not in SPEAKING:
        raise Wrong(f"{str(model)[:60]!r} does not speak; those that do: gpt2, {', '.join(SPEAKING)}")
    words = ["gpt2", "sample"] if model == "gpt2" else ["run", "text"]
    words += ["--stream", "--json", "--record", "{job}/recording.zip", "--device", asked["device"]]
    words += _numbers(asked, max_tokens=(1, 1024), top_k=(0, 50257), seed=(0, 2**53))
    if model != "gpt2" and asked["place"] is not None:
        words += ["--weights", asked["place"]]
    words += ["--greedy"] if asked.get("greedy") else []
    if asked.get("temperature") is not None:
        words += ["--temperature", f"{_number(asked, 'temperature', 1e-3, 100):g}"]
    words += ["--", *([] if model == "gpt2" else [model]), prompt]
    told = ("prompt", "max_tokens", "top_k", "seed", "greedy", "temperature", "weights")
    return _made("sample", model, asked, words, *told)


def script(file: Path, arguments: Sequence[str], device: str = "auto") -> Command:
    """The job of a script, which the command line names and no page can."""
    words = ["record", "--json", "-o", "{job}/recording.zip", "--device", device, "--", str(file), *arguments]
    about = {"script": str(file), "arguments": [*arguments]}
    return Command("script", file.name, device, tuple(words), about)


def _numerics(asked: dict[str, Any], _: Uploads) -> Command:
    return _made("numerics", asked["device"], asked, ["doctor", "--numerics", "--json", "--device", asked["device"]])


_KINDS: dict[str, Callable[[dict[str, Any], Uploads], Command]] = {
    "train": _train,
    "time": _time,
    "check": _check,
    "run": _run,
    "sample": _sample,
    "numerics": _numerics,
}


def _made(kind: str, model: str, asked: Mapping[str, Any], words: list[str], *told: str) -> Command:
    about = {name: asked[name] for name in told if asked.get(name) is not None}
    return Command(kind, model, str(asked["device"]), tuple(words), about)


def _model(asked: Mapping[str, Any]) -> str:
    model = asked.get("model")
    if not isinstance(model, str) or model not in MODELS:
        raise Wrong(f"there is no model {str(model)[:60]!r}")
    return model


def _traceable(asked: Mapping[str, Any], uploads: Uploads) -> str:
    model = asked.get("model")
    if isinstance(model, str) and model.startswith("upload."):
        path = uploads.path(model)
        if path is None or path.suffix != ".onnx":
            raise Wrong("this file is not here any more; drop it again")
        return str(path.resolve())
    return _model(asked)


def _numbers(asked: Mapping[str, Any], **limits: tuple[int, int]) -> list[str]:
    words = []
    for name, (low, high) in limits.items():
        if asked.get(name) is not None:
            value = _number(asked, name, low, high)
            if value != int(value):
                raise Wrong(f"{name} is a whole number")
            words += [f"--{name.replace('_', '-')}", str(int(value))]
    return words


def _number(asked: Mapping[str, Any], name: str, low: float, high: float) -> float:
    value = asked[name]
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise Wrong(f"{name} is a number")
    if not low <= value <= high:
        raise Wrong(f"{name} is from {low:g} to {high:g}")
    return float(value)
