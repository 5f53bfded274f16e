"""Clients that no server wants: they stop, lie, stammer and do not listen. Each returns the status that it got."""

import random
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

_HEAD = b"Host: 127.0.0.1\r\n"


@dataclass
class Attack:
    """What an attack needs to know."""

    port: int
    client: str
    """The address that it comes from."""
    chance: random.Random
    items: list[str]
    image: bytes
    end: float
    """Time at which everything stops."""

    def connect(self) -> socket.socket:
        """A connection of its own."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=20, source_address=(self.client, 0))

    def pause(self, seconds: float) -> None:
        """Do nothing for a while, but not beyond the end."""
        time.sleep(max(0.0, min(seconds, self.end - time.monotonic())))


def _status(connection: socket.socket) -> str:
    """Status of the response; "none" if there is none."""
    received = b""
    with suppress(OSError):
        while len(received) < 12 and (data := connection.recv(4096)):
            received += data
    return received[9:12].decode("latin-1") if received.startswith(b"HTTP/1.1 ") else "none"


def _send(attack: Attack, data: bytes) -> str:
    with attack.connect() as connection:
        with suppress(OSError):
            connection.sendall(data)
        return _status(connection)


def _reset(connection: socket.socket) -> None:
    """Close without a goodbye."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def _post(route: str, length: int | str, body: bytes) -> bytes:
    return f"POST {route} HTTP/1.1\r\n".encode() + _HEAD + f"Content-Length: {length}\r\n\r\n".encode() + body


def half_head(attack: Attack) -> str:
    """The head of a request stops in the middle."""
    with attack.connect() as connection:
        connection.sendall(b"GET /api/items HTTP/1.1\r\nHost: 127"[: attack.chance.randrange(1, 34)])
        attack.pause(attack.chance.uniform(0, 4))
        return "none"


def dribbled_head(attack: Attack) -> str:
    """A head that never ends, byte by byte."""
    with attack.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n" + _HEAD)
        for _ in range(attack.chance.randrange(10, 60)):
            connection.sendall(b"X")
            attack.pause(0.1)
        return "none"


def huge_head(attack: Attack) -> str:
    """A megabyte of headers."""
    return _send(attack, b"GET / HTTP/1.1\r\n" + _HEAD + b"X: " + b"y" * 1_000_000 + b"\r\n\r\n")


def garbage(attack: Attack) -> str:
    """Random bytes."""
    return _send(attack, attack.chance.randbytes(attack.chance.randrange(1, 5000)) + b"\r\n\r\n")


def wrong_line(attack: Attack) -> str:
    """Almost HTTP."""
    lines = [
        b"GET /\r\n\r\n",
        b"GET / HTTP/7.3\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        b"BREW /api/items HTTP/1.1\r\n" + _HEAD + b"\r\n",
        b"GET /%00%ff%2e%2e/ HTTP/1.1\r\n" + _HEAD + b"\r\n",
        b"POST /api/predict HTTP/1.1\r\n" + _HEAD + b"Origin: http://[\r\nContent-Length: 0\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + _HEAD + b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n",
    ]
    return _send(attack, attack.chance.choice(lines))


def longer_than_sent(attack: Attack) -> str:
    """The stated length is larger than the body, and the client stops sending."""
    with attack.connect() as connection:
        connection.sendall(_post("/api/predict", len(attack.image) + 1000, attack.image))
        connection.shutdown(socket.SHUT_WR)
        return _status(connection)


def shorter_than_sent(attack: Attack) -> str:
    """The stated length is smaller than the body: the rest is read as the next request."""
    return _send(attack, _post("/api/predict", 100, attack.image))


def no_length(attack: Attack) -> str:
    """Lengths that are no numbers, negative, too large or given twice."""
    length = attack.chance.choice(["-1", "x", "1e3", str(10**30), "5\r\nContent-Length: 6", "60000000"])
    return _send(attack, _post("/api/uploads", length, b"hello"))


def broken_chunks(attack: Attack) -> str:
    """Chunks without sizes."""
    head = b"POST /api/uploads HTTP/1.1\r\n" + _HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    return _send(attack, head + attack.chance.choice([b"zz\r\n\r\n", b"5\r\nhello", b"5\r\nhelloo\r\n0\r\n\r\n"]))


def aborted_upload(attack: Attack) -> str:
    """Half an image, then the connection is reset."""
    connection = attack.connect()
    connection.sendall(_post("/api/uploads", len(attack.image), attack.image[: len(attack.image) // 2]))
    attack.pause(attack.chance.uniform(0, 0.3))
    _reset(connection)
    return "none"


def aborted_prediction(attack: Attack) -> str:
    """A whole image, but nobody waits for the answer."""
    connection = attack.connect()
    connection.sendall(_post("/api/predict", len(attack.image), attack.image))
    attack.pause(attack.chance.uniform(0, 0.3))
    _reset(connection)
    return "none"


def damaged_image(attack: Attack) -> str:
    """An image with changed bytes."""
    image = bytearray(attack.image[: attack.chance.randrange(1, len(attack.image))])
    for _ in range(20):
        image[attack.chance.randrange(len(image))] = attack.chance.randrange(256)
    return _send(attack, _post(attack.chance.choice(["/api/predict", "/api/uploads"]), len(image), bytes(image)))


def dribbled_body(attack: Attack) -> str:
    """A body that comes byte by byte."""
    with attack.connect() as connection:
        connection.sendall(_post("/api/predict", 100_000, b""))
        for _ in range(attack.chance.randrange(5, 40)):
            connection.sendall(b"x")
            attack.pause(0.1)
        return "none"


def no_reader(attack: Attack) -> str:
    """Asks for much and reads nothing."""
    with attack.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(1)
        request = f"GET /api/items/{attack.items[0]}/predictions/0/overlay.png HTTP/1.1\r\n".encode() + _HEAD + b"\r\n"
        for _ in range(40):
            connection.sendall(request)
        attack.pause(attack.chance.uniform(0, 15))
        return _status(connection)


def slow_reader(attack: Attack) -> str:
    """Reads its answer a little at a time."""
    with attack.connect() as connection:
        connection.sendall(b"GET /static/vendor/openseadragon.min.js HTTP/1.1\r\n" + _HEAD + b"\r\n")
        status = _status(connection)
        for _ in range(20):
            if not connection.recv(500):
                break
            attack.pause(0.05)
        return status


def many_connections(attack: Attack) -> str:
    """More connections than a client may have, without a word."""
    held = []
    with suppress(OSError):
        held = [attack.connect() for _ in range(80)]
    attack.pause(attack.chance.uniform(0, 1))
    status = _status(held[-1]) if len(held) == 80 else "none"
    for connection in held:
        connection.close()
    return status


def flood(attack: Attack) -> str:
    """More requests than a client may send."""
    status = "none"
    with attack.connect() as connection:
        for _ in range(600):
            connection.sendall(b"GET /healthz HTTP/1.1\r\n" + _HEAD + b"\r\n")
            data = connection.recv(65536)
            if not data:
                break
            status = data[9:12].decode("latin-1") if data.startswith(b"HTTP/1.1 ") else status
            if status == "429":
                break
    return status


ATTACKS: list[Callable[[Attack], str]] = [
    half_head,
    dribbled_head,
    huge_head,
    garbage,
    wrong_line,
    longer_than_sent,
    shorter_than_sent,
    no_length,
    broken_chunks,
    aborted_upload,
    aborted_prediction,
    damaged_image,
    dribbled_body,
    no_reader,
    slow_reader,
    many_connections,
    flood,
]
