"""Connections of the server: how many there may be, and how slow a client may be.

uvicorn waits for ever for a request head, a request body and a client that does not read its response. This protocol
looks at each connection in short intervals and cuts those that have stopped, so that they cannot occupy the server.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from histolumen.view.limits import Limits, client_of

_FULL = b'{"detail":"too many connections; try again soon"}'
_FULL_RESPONSE = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 2\r\nConnection: close\r\n"
    b"Content-Length: " + str(len(_FULL)).encode() + b"\r\n\r\n" + _FULL
)
_GOODBYE_SECONDS = 1.0  # for a refused client to read the reason


@dataclass
class _Window:
    """What has happened on a connection during an interval."""

    start: float = 0.0
    unsent: int = 0  # bytes of a response that the client had not read at its start
    received: int = 0  # bytes
    responses: int = 0  # a later one is sent only when the client has read most of the former
    was_paused: bool = False  # the server did not read


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 with limits; made for a server by `bounded_protocol`."""

    limits: ClassVar[Limits]
    counts: ClassVar[Counter[str]]
    """Open connections by client; those that were refused are not counted."""

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self._client = ""
        self._refused = False
        self._watch: asyncio.TimerHandle | None = None
        self._phase, self._since = "head", 0.0
        self._window = _Window()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count the connection, or refuse it."""
        super().connection_made(transport)
        self._client = client_of(self.client[0] if self.client else "")
        counts, limits = self.counts, self.limits
        if counts.total() >= limits.connections or counts[self._client] >= limits.connections_of_client:
            self._refused = True
            if len(self.connections) > 2 * limits.connections:
                transport.abort()
                return
            transport.write(_FULL_RESPONSE)
            self._watch = self.loop.call_later(_GOODBYE_SECONDS, transport.abort)
            return
        counts[self._client] += 1
        self._since = self.loop.time()
        self._window = _Window(self._since)
        self._watch = self.loop.call_later(self._interval, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Count it no more."""
        if self._watch is not None:
            self._watch.cancel()
        if not self._refused:
            self.counts[self._client] -= 1
            if self.counts[self._client] <= 0:
                del self.counts[self._client]
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass the data on, unless the connection was refused."""
        if self._refused:
            return
        self._window.received += len(data)
        super().data_received(data)

    def on_response_complete(self) -> None:
        """The time for the next request begins."""
        self._window.responses += 1
        self._phase, self._since = self._current_phase(), self.loop.time()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer malformed input; in the middle of a response only the connection can be closed."""
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE} and not self.transport.is_closing():
            super().send_400_response(msg)
        else:
            self.transport.abort()

    def _unsupported_upgrade_warning(self) -> None:
        """Nothing: the viewer has no WebSockets, and the advice to install a package for them would be wrong."""

    @property
    def _interval(self) -> float:
        return min(self.limits.head_seconds, self.limits.stall_seconds) / 4

    def _look(self) -> None:
        """Cut the connection if the client is too slow; look again later otherwise."""
        now, limits = self.loop.time(), self.limits
        phase = self._current_phase()
        if phase != self._phase:
            self._phase, self._since = phase, now
        allowed = {"head": limits.head_seconds, "body": limits.body_seconds}.get(phase)
        too_long = allowed is not None and now - self._since > allowed
        if too_long or self._has_stalled(now):
            self.transport.abort()  # close() would wait for a client that does not read
            return
        self._watch = self.loop.call_later(self._interval, self._look)

    def _current_phase(self) -> str:
        if self.conn.their_state is h11.SEND_BODY:
            return "body"
        answered = self.cycle is None or self.cycle.response_complete
        return "head" if answered else "work"

    def _has_stalled(self, now: float) -> bool:
        window, unsent = self._window, self.transport.get_write_buffer_size()
        window.was_paused |= self.flow.read_paused
        if now - window.start < self.limits.stall_seconds:
            return False
        waits_for_body = self._phase == "body" and self._since <= window.start and not window.was_paused
        no_input = waits_for_body and window.received < self.limits.stall_bytes
        waits_for_reader = window.unsent > 0 and window.responses == 0
        no_output = waits_for_reader and unsent > window.unsent - self.limits.stall_bytes and unsent > 0
        self._window = _Window(now, unsent)
        return no_input or no_output


def bounded_protocol(limits: Limits) -> type[BoundedProtocol]:
    """The protocol of one server, which counts its own connections."""
    return type("BoundedProtocolOfServer", (BoundedProtocol,), {"limits": limits, "counts": Counter()})
