"""The outermost layer of the application: security headers on every response, and no error without an answer."""

import logging
from collections.abc import Awaitable, Callable

from starlette.datastructures import MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_OPENSEADRAGON_STYLE = "'sha256-9xTiqzfwFaL2SGb1rmr8gysEwVVjIvqWAgmZgqFqpEE='"  # the one style element that it adds
_POLICY = (
    f"default-src 'none'; script-src 'self'; style-src 'self' {_OPENSEADRAGON_STYLE}; "
    "img-src 'self' blob: data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
_log = logging.getLogger(__name__)


class Shield:
    """Middleware that adds the headers and answers unforeseen errors, whose text may name files, without it."""

    def __init__(self, app: ASGIApp):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        sending = _Sending(send)
        try:
            await self.app(scope, receive, sending)
        except Exception:  # noqa: BLE001 - whatever it is, the client gets an answer
            _log.exception("a request failed")
            if sending.started:
                raise ConnectionAbortedError from None  # the server closes the connection: the response is incomplete
            detail = "an error of the viewer, not of the request; it is described where the viewer was started"
            await JSONResponse({"detail": detail}, 500)(scope, receive, sending)


class _Sending:
    def __init__(self, send: Callable[[Message], Awaitable[None]]):
        self._send, self.started = send, False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers[name] = value
            headers.setdefault("Cache-Control", "no-store")
        await self._send(message)
