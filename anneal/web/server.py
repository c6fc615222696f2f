"""The application: the answer of each address."""

from __future__ import annotations

import asyncio
import contextlib
import json
import mimetypes
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from anneal.errors import UserError
from anneal.frozen import Json
from anneal.training import DRAWING, MODELS, SPEAKING
from anneal.version import __version__
from anneal.web.asking import QUESTIONS, Doctor, Inspector
from anneal.web.curves import MOST_RUNS, Curves
from anneal.web.guard import Guard, Key, Wrong, command
from anneal.web.jobs import MOST_STREAMS, Busy, Command, Job, Jobs, stream, told
from anneal.web.uploads import NAME, Refused, Runs, Uploads, plain

PAGE = Path(__file__).resolve().parent / "static" / "index.html"
VIEWS = ("/", *[f"/{view}{model}" for model in ("", "/{m}") for view in "vkxctgrs"], "/d", "/o")
LONGEST = 1 << 20  # bytes of a question
DOCUMENTS = ("time", "run", "check", "numerics")  # jobs whose command prints one document, not a line an event
# The parameters that a question of the inspector may have.
FLAGS, NUMBERS, WORDS = ("step",), ("kernel", "batch", "line", "plan"), ("model", "device", "name", "op", "file")


@dataclass
class Studio:
    """The state of the server: a folder in which there is runs/, the key, and the children."""

    where: Path
    key: Key
    warm: bool = False  # start the inspecting child before anybody asks
    jobs: Jobs = field(init=False)
    runs: Runs = field(init=False)
    uploads: Uploads = field(init=False)
    inspector: Inspector = field(init=False)
    doctor: Doctor = field(default_factory=Doctor)
    streams: int = 0

    def __post_init__(self) -> None:
        own = self.where / "runs" / ".studio"
        self.jobs = Jobs(own / "jobs", self.where)
        self.uploads = Uploads(own / "uploads", scripts=not self.key.always)  # others must not run programs here
        self.runs = Runs(self.where / "runs", self.uploads)
        self.inspector = Inspector(str((own / "uploads").resolve()), str((own / "jobs").resolve()))


def application(studio: Studio) -> Guard:
    """The application, guarded."""

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        studio.jobs.read()
        watching = [asyncio.create_task(studio.jobs.watch())]
        if studio.warm:
            watching.append(asyncio.create_task(_warm(studio)))
        try:
            yield
        finally:
            for task in watching:
                task.cancel()
            await studio.inspector.stop()

    addresses: dict[str, Json] = {
        "GET": {
            **dict.fromkeys(VIEWS, lambda _: _page()),
            "/favicon.ico": lambda _: Response(status_code=204),
            "/api/session": _session,
            "/api/ask/{question}": _ask,
            "/api/doctor": _doctor,
            "/api/jobs": _jobs,
            "/api/jobs/{id}": _job,
            "/api/jobs/{id}/events": _events,
            "/api/jobs/{id}/picture": _job_picture,
            "/api/jobs/{id}/log": _log,
            "/api/jobs/{id}/lines": _job_lines,
            "/api/jobs/{id}/trace": _job_trace,
            "/api/snapshot": _snapshot,
            "/api/curves": _curves,
            "/api/runs": _runs,
            "/api/runs/{id}": _run,
            "/api/runs/{id}/picture": _picture,
            "/api/runs/{id}/kernel/{name}": _run_kernel,
        },
        "POST": {
            "/api/uploads": _upload,
            "/api/jobs": _new_job,
            "/api/jobs/{id}/{act}": _act,
            "/api/runs/{id}/again": _again,
        },
        "DELETE": {"/api/uploads/{id}": _forget},
    }
    routes = [Route(path, f, methods=[way]) for way, paths in addresses.items() for path, f in paths.items()]
    app = Starlette(
        routes=[*routes, Mount("/static", StaticFiles(directory=PAGE.parent))],
        lifespan=lifespan,
        exception_handlers={
            Exception: lambda _, error: _error(500, f"the studio failed: {type(error).__name__}"),
            Wrong: lambda _, error: _error(400, str(error)),
            Busy: lambda _, error: _error(429, str(error)),
            Refused: lambda _, error: _error(error.status, str(error)),
            404: _missing,
        },
    )
    app.add_middleware(GZipMiddleware, minimum_size=2000, compresslevel=1)
    app.state.studio = studio
    return Guard(app, studio.key)


async def _warm(studio: Studio) -> None:
    """Start the inspector once the first page is out, so that the first question need not wait for its imports."""
    await asyncio.sleep(1)
    await studio.inspector.ask({"ask": "ops"})


def _studio(request: Request) -> Studio:
    found: Studio = request.app.state.studio
    return found


def _error(status: int, text: str) -> Response:
    return JSONResponse({"error": text}, status)


async def _missing(request: Request, _: Exception) -> Response:
    if request.url.path.startswith(("/api/", "/static/")):
        return _error(404, "there is nothing here")
    return _page(404)


mimetypes.add_type("text/javascript", ".js")  # a system may know it otherwise


def _page(status: int = 200) -> Response:
    return Response(PAGE.read_bytes(), status, media_type="text/html")


async def _session(request: Request) -> Response:
    """The first answer that the page needs; the token is for pages of ours, which alone can read this."""
    studio = _studio(request)
    return _json(
        {
            "token": studio.key.token,
            "version": __version__,
            "models": [
                {"name": n, "about": a, "draws": n in DRAWING, "speaks": n == "gpt2" or n in SPEAKING}
                for n, a in MODELS.items()
            ],
            "uploads": [asdict(u) for u in studio.uploads.all()],
            "jobs": [_told(j) for j in studio.jobs.all()[:20]],
            "runs": studio.runs.all()[:12],
        },
        request,
    )


def _json(value: Any, request: Request, status: int = 200) -> Response:
    return _sent(json.dumps(value, separators=(",", ":")).encode(), request, status)


def _sent(text: bytes, request: Request, status: int = 200) -> Response:
    """JSON, in which uploaded files have the names that their senders gave them."""
    return Response(_studio(request).uploads.named(text), status, media_type="application/json")


# -- questions ---------------------------------------------------------------------------------------------------------


async def _ask(request: Request) -> Response:
    """A question for the inspector."""
    name = request.path_params["question"]
    if name not in QUESTIONS:
        return _error(404, "there is no such question")
    question = {"ask": name}
    for key, value in request.query_params.multi_items():
        if key in FLAGS:
            question[key] = value == "1"
        elif key in NUMBERS and _is_number(value):
            question[key] = int(value)
        elif key in WORDS and len(value) <= 1000:
            question[key] = value
        else:
            return _error(400, f"a question has no {key[:40]!r} like that")
    refused = _strange(question, _studio(request))
    if refused:
        return _error(404, refused)
    answer = await _studio(request).inspector.ask(question)
    return _sent(answer.text, request, answer.status)


def _is_number(text: str, most: int = 9) -> bool:
    """True for a text of up to so many digits."""
    return text.isascii() and text.isdigit() and len(text) <= most


def _strange(question: Json, studio: Studio) -> str:
    """The reason why a text does not name a model; only known names are passed on."""
    model = question.get("model")
    if question.get("device", "auto") not in ("auto", "cpu", "webgpu"):
        return "there is no such device"
    if model is None:
        return "" if question["ask"] in ("explain", "ops") else "a question is about a model"
    if model in MODELS or studio.uploads.path(model) is not None:
        return ""
    if model.startswith("job.") and studio.jobs.get(model.removeprefix("job.")) is not None:
        return ""
    return f"there is no model {model[:60]!r}; the first page lists those that there are"


async def _doctor(request: Request) -> Response:
    """The output of `anneal doctor --json`, from a process of its own, since a driver may crash it."""
    return _json(await _studio(request).doctor.report(), request)


# -- files -------------------------------------------------------------------------------------------------------------


async def _upload(request: Request) -> Response:
    name = unquote(request.headers.get("x-file-name", ""))
    called = f"{plain(name)}: " if name else ""
    try:
        found = await _studio(request).uploads.take(name, request.stream())
    except Refused as error:
        return _error(error.status, f"{called}{error}")
    except ClientDisconnect:
        return _error(400, f"{called}the file was cut short")
    except OSError as error:
        return _error(507, f"{called}the file cannot be kept: {error.strerror}")
    return _json(asdict(found), request, 201)


async def _forget(request: Request) -> Response:
    if not _studio(request).uploads.remove(request.path_params["id"]):
        return _error(404, "there is no such file")
    return _json({}, request)


# -- jobs --------------------------------------------------------------------------------------------------------------


def _told(job: Job) -> Json:
    """A job for the page, without its arguments, which have paths of this machine."""
    return {k: v for k, v in asdict(job).items() if k != "arguments"}


async def _jobs(request: Request) -> Response:
    return _json([_told(j) for j in _studio(request).jobs.all()], request)


async def _body(request: Request) -> Json:
    """A small JSON object. Raises Wrong."""
    text = b""
    try:
        async for piece in request.stream():
            text += piece
            if len(text) > LONGEST:
                raise Wrong("that is too long")
        found = json.loads(text or b"{}")
    except ClientDisconnect:
        raise Wrong("the request was cut short") from None
    except (ValueError, RecursionError):
        raise Wrong("the request is no JSON") from None
    if not isinstance(found, dict):
        raise Wrong("the request is no JSON object")
    return found


async def _new_job(request: Request) -> Response:
    studio = _studio(request)
    return _queued(request, command(await _body(request), studio.uploads, studio.jobs.weights, studio.jobs.script))


def _queued(request: Request, made: Command) -> Response:
    try:
        job = _studio(request).jobs.add(made)
    except OSError as error:
        return _error(507, f"the job cannot be kept: {error.strerror}")
    return _json(_told(job), request, 201)


def _found(request: Request, otherwise: str = "there is no such job") -> Job:
    job = _studio(request).jobs.get(request.path_params["id"])
    if job is None:
        raise Refused(404, otherwise)
    return job


def _kept(request: Request, name: str, otherwise: str) -> bytes:
    """A file in the folder of a job."""
    path = _studio(request).jobs.place(_found(request, otherwise)) / name
    if not path.is_file():
        raise Refused(404, otherwise)
    return path.read_bytes()


async def _job(request: Request) -> Response:
    return _json(_told(_found(request)), request)


async def _act(request: Request) -> Response:
    """Stop, cancel, pause or resume; or run it again."""
    nothing = "there is no such job, or nothing of that kind to do"
    jobs, job, act = _studio(request).jobs, _found(request, nothing), request.path_params["act"]
    if act not in ("stop", "cancel", "pause", "resume", "again"):
        raise Refused(404, nothing)
    if act == "again":
        words = [a.replace(str(jobs.place(job)), "{job}") for a in job.arguments]
        return _queued(request, Command(job.kind, job.model, job.device, tuple(words), job.about))
    if not getattr(jobs, act)(job):
        return _error(409, f"a job that is {job.state} cannot {act}")
    return _json(_told(job), request)


async def _events(request: Request) -> Response:
    """The events of a job as they come (server-sent events); `Last-Event-ID` is the byte to go on from."""
    studio, job = _studio(request), _found(request)
    if studio.streams >= MOST_STREAMS:
        return _error(503, f"{MOST_STREAMS} pages are watching already; close one")
    said = request.headers.get("last-event-id") or request.query_params.get("from", "0")
    begin = int(said) if _is_number(said, 15) else 0

    async def counted() -> AsyncIterator[bytes]:
        studio.streams += 1
        try:
            async for piece in stream(
                studio.jobs.place(job) / "events.jsonl", begin, lambda: _told(job), whole=job.kind in DOCUMENTS
            ):
                yield studio.uploads.named(piece)
        finally:
            studio.streams -= 1

    return StreamingResponse(counted(), media_type="text/event-stream", headers={"x-accel-buffering": "no"})


async def _job_picture(request: Request) -> Response:
    step = request.query_params.get("step", "")
    if step and not _is_number(step):
        return _error(400, "a step is a number")
    picture = _kept(request, f"picture{'-' if step else ''}{step}.png", "there is no picture")
    return Response(picture, media_type="image/png")


async def _log(request: Request) -> Response:
    """The end of what a job said on stderr: for a script all that it printed."""
    return _json({"text": _studio(request).jobs.said(_found(request))}, request)


async def _job_lines(request: Request) -> Response:
    """All events of a job so far, in one answer."""
    job = _found(request)
    place = _studio(request).jobs.place(job) / "events.jsonl"
    return _sent(b"[%s]" % await run_in_threadpool(told, place, job.kind in DOCUMENTS), request)


async def _snapshot(request: Request) -> Response:
    """A view as one page of its own."""
    from anneal.web.snapshots import snapshot

    try:
        page = await snapshot(request.app, request.query_params.get("view", "/")[:2000])
    except UserError as error:
        return _error(422, str(error))
    return Response(page, media_type="text/html", headers={"content-disposition": 'attachment; filename="anneal.html"'})


async def _job_trace(request: Request) -> Response:
    """The times that a job measured, as a file for Perfetto."""
    found = _kept(request, "trace.json", "there is no trace; measure the times first")
    headers = {"content-disposition": 'attachment; filename="anneal-trace.json"'}
    text = _studio(request).uploads.named(found)
    return Response(text, media_type="application/json", headers=headers)


# -- runs --------------------------------------------------------------------------------------------------------------


async def _runs(request: Request) -> Response:
    return _json(await run_in_threadpool(_studio(request).runs.all), request)


async def _curves(request: Request) -> Response:
    """The losses of the runs that `runs` names, with a blank between two: those of a `step`, or curves; `x=log` as a
    logarithmic axis needs them.
    """
    ids, curves = request.query_params.get("runs", "").split(), Curves(_studio(request).runs, _studio(request).jobs)
    if not 0 < len(ids) <= MOST_RUNS:
        return _error(400, f"from 1 to {MOST_RUNS} runs can be compared")
    step = request.query_params.get("step", "")
    if _is_number(step, 15):
        return _json({"losses": await run_in_threadpool(curves.at, ids, int(step))}, request)
    found = await run_in_threadpool(curves.of, ids, request.query_params.get("x") == "log")
    return _sent(found, request)


async def _run(request: Request) -> Response:
    found = await run_in_threadpool(_studio(request).runs.one, request.path_params["id"])
    if found is None:
        return _error(404, "there is no such run")
    found["weights"] = _studio(request).jobs.weights(request.path_params["id"]) is not None
    return _json(found, request)


async def _picture(request: Request) -> Response:
    found = _studio(request).runs.place(request.path_params["id"]).read("picture.png")
    return _error(404, "there is no picture") if found is None else Response(found, media_type="image/png")


async def _run_kernel(request: Request) -> Response:
    run, name = request.path_params["id"], request.path_params["name"]
    found = _studio(request).runs.place(run).read(f"kernels/{name}.wgsl") if NAME.fullmatch(name) else None
    if found is None:
        return _error(404, "there is no such kernel")
    return _json({"wgsl": found.decode("utf-8", "replace")}, request)


async def _again(request: Request) -> Response:
    """Re-run: the same model with the same options; with `weights` from those that it ended with."""
    studio = _studio(request)
    found = await run_in_threadpool(_studio(request).runs.one, request.path_params["id"])
    options = ((found or {}).get("config") or {}).get("options")
    if not isinstance(options, dict):
        return _error(404, "there is no such run, or it does not say its options")
    wanted = {k: options.get(k) for k in ("model", "steps", "batch", "seed", "lr")}
    if (await _body(request)).get("weights"):
        wanted["weights"] = request.path_params["id"]
    asked = {"kind": "train", "device": options.get("device") or "auto", **wanted}
    return _queued(request, command(asked, studio.uploads, studio.jobs.weights))
