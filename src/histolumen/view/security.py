"""Who may talk to the viewer: token, host name, origin."""

import hmac
import math
import time
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from histolumen.view.rates import BucketPerClient, scope_client
from histolumen.view.settings import ViewSettings, is_loopback

COOKIE = "histolumen-token"
_OPEN = "/healthz"  # needs no token: it tells nothing
_READING = {"GET", "HEAD"}
_ATTEMPTS_PER_SECOND = 0.1


class Guard:
    """Middleware that refuses requests from other sites and without the token.

    A web page of another site can reach a server on this machine under a name of its own that resolves to 127.0.0.1; so
    a server without token answers only requests that address it by a loopback name. Requests that change something must
    come from the viewer's own pages, or from a program, which sends no Origin.
    """

    def __init__(self, app: ASGIApp, settings: ViewSettings):
        self.app, self._settings = app, settings
        self._attempts = BucketPerClient(_ATTEMPTS_PER_SECOND, settings.limits.wrong_tokens)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a refused request; pass any other on."""
        response = self._refusal(scope) if scope["type"] == "http" else None
        await (self.app if response is None else response)(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._settings.token and not is_loopback(_hostname(host)):
            return _problem(421, "open the viewer by the address that it printed")
        if scope["method"] not in _READING and _is_foreign(headers, host):
            return _problem(403, "requests from other sites are refused")
        if not self._settings.token or scope["path"] == _OPEN:
            return None
        return self._check_token(scope, headers)

    def _check_token(self, scope: Scope, headers: Headers) -> Response | None:
        query = parse_qs(scope["query_string"].decode("latin-1"))
        entering = scope["method"] == "GET" and scope["path"] == "/" and "token" in query
        given = [query["token"][0]] if entering else [token for token in (_bearer(headers), _cookie(headers)) if token]
        attempts, now = self._attempts.of(scope_client(scope), time.monotonic()), time.monotonic()
        if given and (seconds := attempts.missing_seconds(now)):
            return _problem(429, "too many wrong tokens from this address", {"Retry-After": str(math.ceil(seconds))})
        if any(self._matches(token) for token in given):
            if not entering:
                return None
            redirect = RedirectResponse("/", 303)
            redirect.set_cookie(COOKIE, self._settings.token, httponly=True, samesite="strict")
            return redirect
        if given:
            attempts.take(now)
        advice = "this viewer needs a token: open the address that it printed, or send Authorization: Bearer TOKEN"
        return _problem(401, advice, {"WWW-Authenticate": "Bearer"})

    def _matches(self, given: str) -> bool:
        """In a time that does not depend on where the two differ."""
        return hmac.compare_digest(given.encode("utf-8", "replace"), self._settings.token.encode())


def _problem(status: int, detail: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"detail": detail}, status, headers)


def _is_foreign(headers: Headers, host: str) -> bool:
    """Whether a page of another site sent the request; programs send none of these headers."""
    if headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
        return True
    origin = headers.get("origin")
    if origin is None:
        return False
    try:
        return urlsplit(origin).netloc != host
    except ValueError:
        return True


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
