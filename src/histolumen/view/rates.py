"""How many requests a client, and all clients together, may send."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from histolumen.view.limits import Limits, client_of

_CLIENTS = 4096  # the least recent ones are forgotten: addresses are cheap for an attacker, memory is not


class Bucket:
    """A token bucket: `capacity` at once, `rate` per second in the long run."""

    def __init__(self, rate: float, capacity: float, now: float):
        self._rate, self._capacity = rate, max(1.0, capacity)
        self._level, self._at = self._capacity, now

    def missing_seconds(self, now: float) -> float:
        """Time until something may be taken; 0: now."""
        self._level = min(self._capacity, self._level + self._rate * (now - self._at))
        self._at = now
        return max(0.0, (1 - self._level) / self._rate)

    def take(self, now: float) -> float:
        """Take one, or return the time in seconds after which there will be one."""
        missing = self.missing_seconds(now)
        if missing == 0:
            self._level -= 1
        return missing


class BucketPerClient:
    """One bucket for each of the clients that were seen last."""

    def __init__(self, rate: float, capacity: float):
        self._rate, self._capacity = rate, capacity
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def of(self, client: str, now: float) -> Bucket:
        """The bucket of a client."""
        if client not in self._buckets:
            self._buckets[client] = Bucket(self._rate, self._capacity, now)
            if len(self._buckets) > _CLIENTS:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(client)
        return self._buckets[client]


class RateLimit:
    """Middleware that refuses requests above the rates: 429 for one client, 503 for all together.

    Args:
        app: the application.
        limits: the rates.
        clock: time in seconds.
    """

    def __init__(self, app: ASGIApp, limits: Limits, clock: Callable[[], float] = time.monotonic):
        self.app, self._clock = app, clock
        of_all, of_client = limits.requests_per_second, limits.requests_of_client_per_second
        self._all = Bucket(of_all, of_all * limits.burst_seconds, clock())
        self._clients = BucketPerClient(of_client, of_client * limits.burst_seconds)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that is too much; pass any other on."""
        if scope["type"] == "http":
            now = self._clock()
            seconds = self._clients.of(scope_client(scope), now).take(now)
            status, reason = 429, "too many requests from this address; try again soon"
            if not seconds:
                seconds = self._all.take(now)
                status, reason = 503, "too many requests; try again soon"
            if seconds:
                headers = {"Retry-After": str(math.ceil(seconds))}
                await JSONResponse({"detail": reason}, status, headers)(scope, receive, send)
                return
        await self.app(scope, receive, send)


def scope_client(scope: Scope) -> str:
    """The client that sent a request."""
    return client_of(scope["client"][0]) if scope.get("client") else ""
