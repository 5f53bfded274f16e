"""Who may talk to the viewer: token, host name, origin; and the headers of every response."""

import hmac
from collections.abc import Awaitable, Callable
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from histolumen.view.settings import ViewSettings, is_loopback

COOKIE = "histolumen-token"
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
}
_OPEN = "/healthz"  # needs no token: it tells nothing


class Guard:
    """Middleware that refuses requests from other sites and without the token.

    A web page of another site can reach a server on this machine under a name of its own that resolves to 127.0.0.1; so
    a server without token answers only requests that address it by a loopback name. Requests that change something must
    come from the viewer's own pages, or from a program, which sends no Origin.
    """

    def __init__(self, app: ASGIApp, settings: ViewSettings):
        self.app, self._settings = app, settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a refused request; pass any other on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        response = self._refusal(scope)
        if response is not None:
            await response(scope, receive, _with_headers(send))
            return
        await self.app(scope, receive, _with_headers(send))

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._settings.token and not is_loopback(_hostname(host)):
            return PlainTextResponse("open the viewer by the address that it printed", 421)
        origin = headers.get("origin")
        if scope["method"] not in {"GET", "HEAD"} and origin is not None and urlsplit(origin).netloc != host:
            return PlainTextResponse("requests from other sites are refused", 403)
        if not self._settings.token or scope["path"] == _OPEN:
            return None
        query = parse_qs(scope["query_string"].decode("latin-1"))
        if scope["method"] == "GET" and scope["path"] == "/" and self._matches(query.get("token", [""])[0]):
            redirect = RedirectResponse("/", 303)
            redirect.set_cookie(COOKIE, self._settings.token, httponly=True, samesite="strict")
            return redirect
        if self._matches(_bearer(headers)) or self._matches(_cookie(headers)):
            return None
        return PlainTextResponse(
            "this viewer needs a token: open the address that it printed, or send Authorization: Bearer TOKEN",
            401,
            {"WWW-Authenticate": "Bearer"},
        )

    def _matches(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "replace"), self._settings.token.encode())


def _with_headers(send: Send) -> Callable[[Message], Awaitable[None]]:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers[name] = value
            headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return send_with_headers


def _hostname(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _bearer(headers: Headers) -> str:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _cookie(headers: Headers) -> str:
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return morsel.value if morsel else ""
