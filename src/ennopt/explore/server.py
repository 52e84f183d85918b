"""The server of the page: this computer only, a token in the address, no files.

Everything is below ``/TOKEN/``. A request is refused if it names another host (a page
elsewhere that made its own name point here), comes from another origin, or does not
know the token. What is sent is made in memory or is part of this package, so there is
no path that could lead to a file.
"""

from __future__ import annotations

import contextlib
import functools
import hmac
import json
import secrets
import socket
import webbrowser
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from importlib import resources
from typing import Any

from ennopt.explore import answers, look
from ennopt.explore.form import (
    RISKS,
    TRUSTS,
    FormError,
    Inquiry,
    read_form,
    shown_coordinates,
)
from ennopt.explore.runs import Runs
from ennopt.explore.subject import Subject
from ennopt.extras import require
from ennopt.network import shown
from ennopt.pages.render import filled, style
from ennopt.version import VERSION

HOST = "127.0.0.1"
"""The only address that is listened to: that of this computer for itself."""

LARGEST_BODY = 256 * 1024
"""Bytes of a request: forms are far smaller."""

KEPT = 8
"""Forms that are remembered as read: a slider moves often, the form does not."""

SAFE = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; connect-src "
    "'self'; style-src 'self' 'unsafe-inline'; img-src data:; form-action 'none'; "
    "base-uri 'none'; frame-ancestors 'none'",
}
"""Sent with every response: nothing is loaded from elsewhere, nothing is kept."""

LOST = (
    "Open the address that ennopt explore printed: the part after the host is needed."
)


class Desk:
    """The page of a subject, request by request.

    Parameters
    ----------
    subject
        What is explored.
    token
        The secret part of the address; by default a new one.
    """

    def __init__(self, subject: Subject, token: str | None = None) -> None:
        self.subject = subject
        self.token = secrets.token_urlsafe(24) if token is None else token
        self.runs = Runs()
        self._read: OrderedDict[str, Inquiry] = OrderedDict()

    def question(self, form: dict[str, str]) -> Inquiry:
        """What a form asks; the last few are remembered."""
        asked = {name: at for name, at in form.items() if not name.startswith("at-")}
        key = json.dumps(asked, sort_keys=True)
        found = self._read.get(key)
        if found is None:
            found = self._read[key] = read_form(self.subject, asked)
            while len(self._read) > KEPT:
                self._read.popitem(last=False)
        return found

    def page(self) -> str:
        """The whole page."""
        subject, form = self.subject, self.subject.start()
        question = self.question(form)
        x, sliders = look.place_of(question.problem, form)
        ensemble, data = subject.loaded.ensemble, subject.place.data
        return filled(
            "explore.html",
            model=shown(ensemble.source or subject.path),
            networks=repr(ensemble),
            members=len(ensemble.members),
            num_inputs=len(shown_coordinates(subject, form)),
            num_rows=0 if data is None else len(data.rows),
            target=subject.target,
            outputs=[shown(name) for name in subject.outputs],
            form=form,
            inputs=self.inputs(form),
            sliders=filled("explore_sliders.html", sliders=sliders),
            response=look.response(question, x),
            risks=RISKS,
            trusts=TRUSTS,
            version=VERSION,
        )

    def inputs(self, form: dict[str, str]) -> str:
        """The rows of the table of inputs, filled as a form is: HTML."""
        found = []
        start = self.subject.start()
        for one in shown_coordinates(self.subject, form):
            j = one.inputs[0]
            names = [f"{part}-{j}" for part in ("low", "high", "fixed", "values")]
            row: dict[str, Any] = {"id": j, "name": shown(one.name)}
            row["levels"] = None if one.levels is None else [
                shown(str(level)) for level in one.levels
            ]  # fmt: skip
            fields = [*names, f"whole-{j}", f"level-{j}"]
            row["form"] = {
                field.partition("-")[0]: form.get(field, start.get(field, ""))
                for field in fields
            }
            found.append(row)
        return filled("explore_inputs.html", rows=found)


def application(desk: Desk) -> Any:
    """The web application of a desk, for an ASGI server."""
    require("starlette", "explore")
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import Request
    from starlette.responses import (
        HTMLResponse,
        JSONResponse,
        PlainTextResponse,
        Response,
        StreamingResponse,
    )
    from starlette.routing import Route

    def guarded(handler: Callable[[Request], Any]) -> Callable[[Request], Any]:
        """Refuse what does not come from the page, and bodies that are too large."""

        @functools.wraps(handler)
        async def checked(request: Request) -> Response:
            if (refusal := refused(request, desk.token)) is not None:
                return PlainTextResponse(refusal, 403, SAFE)
            try:
                response: Response = await handler(request)
            except FormError as error:
                response = JSONResponse({"wrong": error.wrong}, 422)
            except ValueError as error:
                response = JSONResponse({"wrong": {"": shown(str(error))}}, 400)
            for name, text in SAFE.items():
                response.headers.setdefault(name, text)
            return response

        return checked

    async def form_of(request: Request) -> dict[str, str]:
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > LARGEST_BODY:
                raise ValueError(
                    f"Expected a form of at most {LARGEST_BODY} bytes, got more."
                )
        form = json.loads(body or b"{}")
        if not isinstance(form, dict):
            raise ValueError("Expected the fields of the page, got something else.")
        return {str(name): str(text) for name, text in form.items()}

    async def page(request: Request) -> Response:
        return HTMLResponse(await run_in_threadpool(desk.page))

    async def static(request: Request) -> Response:
        name = request.path_params["name"]
        if name == "style.css":
            return Response(style() + _own("page.css"), media_type="text/css")
        return Response(_own("page.js"), media_type="text/javascript")

    async def inputs(request: Request) -> Response:
        form = await form_of(request)
        return JSONResponse({"html": await run_in_threadpool(desk.inputs, form)})

    async def respond(request: Request) -> Response:
        form = await form_of(request)

        def work() -> dict[str, Any]:
            question = desk.question(form)
            x, sliders = look.place_of(question.problem, form)
            return {"html": look.response(question, x), "sliders": sliders}

        return JSONResponse(await run_in_threadpool(work))

    async def sliders(request: Request) -> Response:
        form = await form_of(request)
        question = await run_in_threadpool(desk.question, form)
        _, found = look.place_of(question.problem, form)
        return JSONResponse({"html": filled("explore_sliders.html", sliders=found)})

    async def run(request: Request) -> Response:
        form = await form_of(request)
        begun = desk.runs.open(await run_in_threadpool(desk.question, form))
        return StreamingResponse(
            desk.runs.follow(begun), media_type="application/x-ndjson"
        )

    async def stop(request: Request) -> Response:
        desk.runs.stop(request.path_params["run"])
        return Response(status_code=204)

    async def compare(request: Request) -> Response:
        names = (await form_of(request)).get("answers", "").split()
        known = [name for name in names if name in desk.runs.answers]
        html = await run_in_threadpool(answers.table, desk.runs.answers, known)
        return JSONResponse({"html": html, "answers": known})

    async def download(request: Request) -> Response:
        name, file = request.path_params["run"], request.path_params["file"]
        if name not in desk.runs.answers or file not in answers.FILES:
            return PlainTextResponse("There is no such answer.", 404)
        text = await run_in_threadpool(answers.content, desk.runs.answers[name], file)
        return Response(
            text, media_type=answers.FILES[file][1],
            headers={"Content-Disposition": f'attachment; filename="{file}"'},
        )  # fmt: skip

    async def elsewhere(request: Request) -> Response:
        return PlainTextResponse(LOST, 403, SAFE)

    @contextlib.asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        yield
        desk.runs.stop_all()

    below = "/{token}"
    routes = [
        Route(f"{below}/", guarded(page)),
        Route(f"{below}/inputs", guarded(inputs), methods=["POST"]),
        Route(f"{below}/respond", guarded(respond), methods=["POST"]),
        Route(f"{below}/sliders", guarded(sliders), methods=["POST"]),
        Route(f"{below}/run", guarded(run), methods=["POST"]),
        Route(f"{below}/stop/{{run}}", guarded(stop), methods=["POST"]),
        Route(f"{below}/compare", guarded(compare), methods=["POST"]),
        Route(f"{below}/answers/{{run}}/{{file}}", guarded(download)),
        Route(f"{below}/static/{{name}}", guarded(static)),
        Route("/{rest:path}", elsewhere),
    ]
    return Starlette(routes=routes, lifespan=lifespan)


def refused(request: Any, token: str) -> str | None:
    """Why a request is none of the page's, ``None`` if it is one."""
    host = request.headers.get("host", "")
    name, _, port = host.rpartition(":")
    own = request.scope["server"]
    if name not in (HOST, "localhost") or own is None or port != str(own[1]):
        return f"Expected a request to this computer, got one to {shown(host)!r}."
    origin = request.headers.get("origin")
    if origin is not None and origin != f"http://{host}":
        return f"Expected a request from the page itself, got one from {origin!r}."
    site = request.headers.get("sec-fetch-site", "none")
    if site not in ("same-origin", "none"):
        return f"Expected a request from the page itself, got a {site!r} one."
    given = request.path_params.get("token", "")
    if not hmac.compare_digest(given.encode(), token.encode()):
        return LOST
    return None


def _own(name: str) -> str:
    """A file of this package."""
    return resources.files(__package__).joinpath(name).read_text("utf-8")


class Service:
    """A desk on a port of this computer.

    Parameters
    ----------
    desk
        What is served.
    port
        Where; 0 for any that is free.
    """

    def __init__(self, desk: Desk, port: int = 0) -> None:
        uvicorn = require("uvicorn", "explore")
        self.desk = desk
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((HOST, port))
            self._socket.listen()  # from now on a browser waits for an answer
        except OSError as error:
            self._socket.close()
            raise ValueError(
                f"Expected a port that is free, got {port} ({error.strerror}). Leave "
                "--port out."
            ) from error
        config = uvicorn.Config(
            application(desk), log_level="warning", access_log=False,
            timeout_graceful_shutdown=5, server_header=False,
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        leave = self._server.handle_exit

        def handle_exit(number: int, frame: Any) -> None:
            desk.runs.stop_all()  # or the server would wait for them to end
            leave(number, frame)

        self._server.handle_exit = handle_exit

    @property
    def address(self) -> str:
        """Where the page is, token and all."""
        port = self._socket.getsockname()[1]
        return f"http://{HOST}:{port}/{self.desk.token}/"

    def run(self, *, browser: bool = False) -> None:
        """Serve until Ctrl-C or `stop`."""
        if browser:
            webbrowser.open(self.address)
        self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """End `run`, which may be in another thread; runs under way are stopped."""
        self.desk.runs.stop_all()
        self._server.should_exit = True
