"""The application: addresses, and what each does.  All work on users' files and on plans is done by other processes."""

import asyncio
import hashlib
import os
import re
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
import msgspec
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from groundwork.errors import ConfigError, OrreryError
from groundwork.units import GIB, GIGA, MICRO
from hwprofiles.catalogue.cluster_catalogue import cluster_names, describe_cluster, load_cluster
from hwprofiles.devices.device_graph import DeviceGraph
from hwprofiles.plugins.entry_points import plugin_names, working
from orrery.workbench.benches import Benches, Job
from orrery.workbench.processes import run_once
from orrery.workbench.scenario_view import StoredScenario, keep_scenario, kept_scenarios, open_scenario, scenario_pair
from orrery.workbench.subject import UPLOAD, BenchSubject, check_profiles, loaded_cluster, parsed_subject
from orrery.workbench.transport.guard import Guard, limited_body
from orrery.workbench.working_folder import UPLOAD_KINDS, WorkingFolder, json_bytes
from planner.cost.all_reduce import GRADIENT_SYNCS
from planner.models.registry import load_model, model_names
from planner.plan.plan_options import DTYPE_BYTES
from planner.strategies.named_rules import NAMED
from planner.strategies.named_strategies import PIPELINE, SEARCHED
from reports.drawings.cluster_view import cluster_view
from reports.pages.page_template import packed_plotly, template_text
from reports.style.palette import PALETTE

_MOST_DRAWN = 6_000
"""Links of the largest drawing, in which one machine stands for all that are equal."""
_MESSAGE_BYTES = 2**20
"""Size of the message whose latency is shown."""


def cluster_values(subject: BenchSubject) -> dict[str, Any]:
    """Return a cluster with the changes of a subject.

    Raises:
        ConfigError: The cluster or a change breaks a rule.
        UnreachableError: No route joins two devices.
    """
    cluster = loaded_cluster(subject)
    drawing = cluster_view(cluster)
    plain = loaded_cluster(subject.model_copy(update={"edits": {}})) if subject.edits else cluster
    return {
        "name": cluster.name,
        "nodes": cluster.node_count,
        "devices": [
            {"name": each.name, "profile": each.profile, "speed": each.speed, "memory_gib": each.memory_bytes / GIB}
            for each in cluster.devices
        ],
        "classes": _classes(cluster, plain),
        "links": [
            {"name": link.name, "class": link.link_class, "gbyte_per_s": link.bandwidth_bytes_per_s / GIGA}
            for link in cluster.links
        ],
        "drawing": drawing if len(drawing["links"]) <= _MOST_DRAWN else None,
    }


def _classes(cluster: DeviceGraph, plain: DeviceGraph) -> list[dict[str, Any]]:
    """Return the classes of links with the fastest link's numbers now, and those without the changes."""
    before = {link.link_class: link for link in reversed(plain.links)}
    counts = Counter(link.link_class for link in cluster.links)
    rows = []
    for link_class, count in counts.items():
        link = max(
            (each for each in cluster.links if each.link_class == link_class),
            key=lambda each: each.bandwidth_bytes_per_s,
        )
        first = before.get(link_class, link)
        rows.append(
            {
                "name": link_class,
                "count": count,
                "exclusive": link.exclusive,
                "gbyte_per_s": link.bandwidth_bytes_per_s / GIGA,
                "was_gbyte_per_s": first.bandwidth_bytes_per_s / GIGA,
                "latency_us": link.latency.at(_MESSAGE_BYTES) / MICRO,
                "was_latency_us": first.latency.at(_MESSAGE_BYTES) / MICRO,
            }
        )
    return rows


@cache
def _catalogue() -> dict[str, Any]:
    """Return what does not change while the server runs."""
    clusters = working("clusters", cluster_names(), describe_cluster)
    return {
        "models": model_names(),
        "clusters": [{"name": each.name, "devices": each.devices, "about": each.description} for each in clusters],
        "strategies": [*NAMED, PIPELINE, *SEARCHED, *plugin_names("strategies")],
        "gradient_syncs": list(GRADIENT_SYNCS),
        "dtypes": list(DTYPE_BYTES),
    }


def choices(folder: WorkingFolder) -> dict[str, Any]:
    """Return the names of everything that can be chosen."""
    uploads = {kind: [f"{UPLOAD}{name}" for name in folder.names(kind, ".yaml")] for kind in ("models", "clusters")}
    return {**_catalogue(), "uploaded": uploads}


def checked_model(file: str) -> dict[str, Any]:
    """Return the size of a model file.

    Raises:
        ConfigError: It breaks a rule.
    """
    graph = load_model(file, batch=1)
    return {"layers": len(graph.layers), "parameters": graph.parameter_count}


def checked_cluster(file: str) -> dict[str, Any]:
    """Return the size of a cluster file.

    Raises:
        ConfigError: It breaks a rule, or names a compute profile outside the catalogue.
    """
    cluster = load_cluster(file)
    check_profiles(cluster)
    return {"devices": len(cluster.devices), "nodes": cluster.node_count}


_MOST_UPLOAD_BYTES, _MOST_REQUEST_BYTES = 8 * 2**20, 2**16
_PAGE_NAME = re.compile(r"[A-Za-z0-9_-]{8,40}")
_KINDS = ("compare", "reprice", "timeline", "page")
_PING_S = 10
_MOST_CHECKS, _MOST_THREADS = 8, 32
"""Processes for uploads and drawings at once, and threads: fewer wait for such a process than there are."""
_FOREVER = {"cache-control": "private, max-age=31536000, immutable"}
"""For files whose address has their content's hash."""
_Handler = Callable[[Request], Awaitable[Response]]


def application(folder: WorkingFolder, *, token: str, port: int) -> Starlette:
    """Return the application."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_MOST_THREADS))
        app.state.folder, app.state.benches = folder, Benches(str(folder.path))
        app.state.checks = asyncio.Semaphore(_MOST_CHECKS)
        app.state.benches.prepare()
        yield
        app.state.benches.close()

    routes = [
        Route("/", _file("workbench.html", "text/html", {})),
        Route("/workbench.css", _file("workbench.css", "text/css", _FOREVER)),
        Route("/workbench.js", _file("workbench.js", "text/javascript", _FOREVER)),
        Route("/plotly.js", _file("plotly.js", "text/javascript", {**_FOREVER, "content-encoding": "gzip"})),
        Route("/api/choices", _choices),
        Route("/api/uploads/{kind}/{name}", _upload, methods=["PUT"]),
        Route("/api/uploads/{kind}/{name}", _forget, methods=["DELETE"]),
        Route("/api/cluster", _cluster, methods=["POST"]),
        Route("/api/jobs", _begin, methods=["POST"]),
        Route("/api/jobs/{job}", _cancel, methods=["DELETE"]),
        Route("/api/jobs/{job}/events", _events),
        Route("/api/jobs/{job}/page", _page),
        Route("/api/scenarios", _keep, methods=["PUT"]),
        Route("/api/scenarios/compared", _compared, methods=["POST"]),
        Route("/api/scenarios/{file}", _drop, methods=["DELETE"]),
    ]
    middleware = [Middleware(Guard, token=token, port=port), Middleware(GZipMiddleware)]
    app = Starlette(routes=routes, lifespan=lifespan, middleware=middleware)
    for kind in (OrreryError, HTTPException, OSError, ClientDisconnect, Exception):
        app.add_exception_handler(kind, _refused)
    return app


async def _refused(request: Request, error: Exception) -> Response:
    """Answer with what went wrong, on one line."""
    if isinstance(error, HTTPException):
        said = "this address is not one of the workbench" if error.status_code == 404 else error.detail
        return _json({"error": said}, error.status_code)
    if isinstance(error, OrreryError):
        return _json({"error": str(error)}, 400)
    if isinstance(error, OSError):
        return _json({"error": f"cannot use {str(error.filename or 'a file')!r}: {error.strerror or error}"}, 500)
    if isinstance(error, ClientDisconnect):
        return Response(status_code=400)  # to nobody
    if not os.environ.get("ORRERY_DEBUG"):  # with it, the server logs the traceback
        print(f"orrery: {type(error).__name__} in {request.method} of the workbench; it goes on", file=sys.stderr)
    return _json({"error": f"the workbench met an error of its own ({type(error).__name__}); it goes on"}, 500)


def _json(value: Any, status: int = 200) -> Response:
    return Response(json_bytes(value), status, media_type="application/json")


def _file(name: str, media_type: str, headers: dict[str, str]) -> _Handler:
    """Return a function that answers with a file of the workbench."""

    async def answer(request: Request) -> Response:
        return Response(served(name), media_type=f"{media_type}; charset=utf-8", headers=headers)

    return answer


async def _choices(request: Request) -> Response:
    folder: WorkingFolder = request.app.state.folder
    return _json({**await asyncio.to_thread(choices, folder), **await _scenarios(folder)})


async def _scenarios(folder: WorkingFolder) -> dict[str, Any]:
    return {"scenarios": await asyncio.to_thread(kept_scenarios, folder)}


async def _values(request: Request) -> dict[str, Any]:
    """Return the JSON object that a request brings.

    Raises:
        ConfigError: It is none, or too large.
    """
    body = await limited_body(request, _MOST_REQUEST_BYTES, "request")
    try:
        values = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ConfigError("request must be one JSON object") from None
    if not isinstance(values, dict):
        raise ConfigError("request must be one JSON object")
    return values


async def _upload(request: Request) -> Response:
    """Take in a model or cluster file, once a process of its own has read it without complaint."""
    folder: WorkingFolder = request.app.state.folder
    kind, name = _upload_name(request)
    content = await limited_body(request, _MOST_UPLOAD_BYTES, "upload")
    read = checked_model if kind == "models" else checked_cluster

    def check(path: Path) -> Any:
        return run_once(path.parent, read, path.name)

    async with request.app.state.checks:
        found = await asyncio.to_thread(folder.add, kind, name, ".yaml", content, check)
    return _json({"name": f"{UPLOAD}{name}", **found})


def _upload_name(request: Request) -> tuple[str, str]:
    """Return the kind and the name of an upload."""
    kind = request.path_params["kind"]
    if kind not in UPLOAD_KINDS:
        raise ConfigError(f"uploads must be one of {', '.join(UPLOAD_KINDS)}, got {kind!r}")
    return kind, request.path_params["name"]


async def _forget(request: Request) -> Response:
    folder: WorkingFolder = request.app.state.folder
    await asyncio.to_thread(folder.remove, *_upload_name(request), ".yaml")
    return _json({})


async def _cluster(request: Request) -> Response:
    subject, folder = parsed_subject(await _values(request)), request.app.state.folder
    async with request.app.state.checks:
        return _json(await asyncio.to_thread(run_once, folder.path, cluster_values, subject))


async def _begin(request: Request) -> Response:
    values = await _values(request)
    owner, kind, shown = (values.get(key, "") for key in ("bench", "kind", "shown"))
    if not isinstance(owner, str) or not _PAGE_NAME.fullmatch(owner):
        raise ConfigError("bench must be 8 to 40 letters, digits, _ and -")
    if kind not in _KINDS or not isinstance(shown, str):
        raise ConfigError(f"kind must be one of {', '.join(_KINDS)}, got {kind!r}")
    subject = parsed_subject(values.get("subject"))
    edits = values.get("compared", {}) if kind in ("reprice", "timeline") else subject.edits
    compared = parsed_subject({**subject.model_dump(), "edits": edits, "price": None})
    job = await request.app.state.benches.begin(owner, kind, subject, compared, shown=shown)
    return _json({"job": job.id, "command": subject.command})


def _job(request: Request) -> Job:
    job = request.app.state.benches.job(request.path_params["job"])
    assert isinstance(job, Job)
    return job


async def _cancel(request: Request) -> Response:
    request.app.state.benches.cancel(_job(request))
    return _json({})


async def _events(request: Request) -> Response:
    """Stream the events of a job, from the one behind the last that the browser has."""
    job = _job(request)
    last = request.headers.get("last-event-id", "")
    after = int(last) if last.isascii() and last.isdigit() and len(last) < 9 else -1

    async def stream() -> AsyncIterator[ServerSentEvent]:
        with request.app.state.benches.listening(job):
            async for number, kind, values in job.events_after(after):
                yield ServerSentEvent(json_bytes(values).decode(), event=kind, id=str(number))

    return EventSourceResponse(stream(), ping=_PING_S)


async def _page(request: Request) -> Response:
    """Answer with the page that a job has written, as a download."""
    job, folder = _job(request), request.app.state.folder
    if not job.page:
        raise ConfigError("this job has written no page")
    path: Path = folder.file("pages", job.page.removesuffix(".html"), ".html")
    return FileResponse(path, media_type="text/html", filename=job.page)


async def _keep(request: Request) -> Response:
    values, folder = await _values(request), request.app.state.folder
    name = values.get("name")
    if not isinstance(name, str):
        raise ConfigError("name of a scenario must be a text")
    job = request.app.state.benches.job(str(values.get("job")))
    if job.table is None:
        raise ConfigError("a scenario is kept once its comparison is complete")
    kept = StoredScenario(
        name=name.strip(), subject=job.subject, numbers=job.table["numbers"], searched=job.table["searched"]
    )
    await asyncio.to_thread(keep_scenario, folder, kept)
    return _json(await _scenarios(folder))


async def _drop(request: Request) -> Response:
    folder = request.app.state.folder
    await asyncio.to_thread(folder.remove, "scenarios", request.path_params["file"], ".json")
    return _json(await _scenarios(folder))


async def _compared(request: Request) -> Response:
    values, folder = await _values(request), request.app.state.folder
    pair = [await asyncio.to_thread(open_scenario, folder, str(values.get(key))) for key in ("left", "right")]
    return _json(scenario_pair(*pair))


_PLOTLY = "plotly.js"


@cache
def served(name: str) -> bytes:
    """Return a file of the workbench: its page, style, script, or ``plotly.js``, which is compressed by gzip."""
    if name == _PLOTLY:
        return packed_plotly()
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_text),
        autoescape=name.endswith(".html"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    return environment.get_template(name).render(palette=PALETTE, address=_address).encode()


def _address(name: str) -> str:
    """Return the address of a file, another one for every content: browsers never ask for it twice."""
    return f"{name}?{hashlib.sha256(served(name)).hexdigest()[:12]}"


def _text(name: str) -> str:
    """Return a template: one of this folder, else one of the reports."""
    own = files("orrery.workbench").joinpath("templates", name)
    return own.read_text(encoding="utf-8") if own.is_file() else template_text(name)
