"""What every request must have before it is looked at: the token in its address, this server as host and origin."""

import asyncio
import hmac

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from groundwork.errors import ConfigError

_HEADERS = {
    # Pages load scripts, styles and data from here alone; figures and canvases make images and styles themselves.
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_MOST_READ_BYTES = 64 * 2**20
"""Bytes of a body that is too large which are read before the answer, so that browsers show it."""
_BODY_S = 60.0
"""Time in which a body must arrive; the largest takes less than a second on this machine."""


class Guard:
    """Refuses requests without the token, from other sites, or to other names of this machine.

    A page of another site that makes the browser send requests here does not know the token; one that has its own name
    resolve to this machine has another ``Host``.
    """

    def __init__(self, app: ASGIApp, *, token: str, port: int) -> None:
        self._app, self._token = app, token.encode()
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        if scope["type"] != "http":
            return await send({"type": "websocket.close", "code": 1008})
        refusal = self._refusal(Headers(scope=scope))
        given, slash, rest = str(scope["path"]).removeprefix("/").partition("/")
        if not refusal and not hmac.compare_digest(given.encode(), self._token):
            refusal = "The address lacks the token: open the one that orrery serve has printed."
        elif not refusal and not slash:
            refusal = "The address must end in a slash."
        if refusal:
            answer = PlainTextResponse(refusal + "\n", 403, {"connection": "close"})  # whatever body may follow
            return await answer(scope, receive, _with_headers(send))
        inner = {**scope, "path": f"/{rest}", "raw_path": f"/{rest}".encode(), "root_path": ""}
        await self._app(inner, receive, _with_headers(send))

    def _refusal(self, headers: Headers) -> str:
        """Return why a request is refused; empty if it is not."""
        if headers.get("host", "") not in self._hosts:
            return "This server answers on 127.0.0.1 and localhost only."
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        if origin is not None and origin not in {f"http://{host}" for host in self._hosts}:
            return "This server answers its own pages only."
        if site not in ("same-origin", "none"):
            return "This server answers its own pages only."
        return ""


def _with_headers(send: Send) -> Send:
    """Return a function that sends with the headers that every answer has."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sending


async def limited_body(request: Request, most_bytes: int, what: str) -> bytes:
    """Return the body of a request.

    Raises:
        ConfigError: It is larger than ``most_bytes``, or takes more than a minute to arrive.
        ClientDisconnect: The client has left.
    """
    parts, size = list[bytes](), 0
    try:
        async with asyncio.timeout(_BODY_S):
            async for part in request.stream():
                size += len(part)
                if size <= most_bytes:
                    parts.append(part)
                elif size > _MOST_READ_BYTES:
                    break
    except TimeoutError:
        raise ConfigError(f"{what} must arrive within {_BODY_S:g} s") from None
    if size > most_bytes:
        raise ConfigError(f"{what} must have at most {most_bytes / 2**20:.3g} MiB")
    return b"".join(parts)
