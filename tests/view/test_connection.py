"""Slow, stuck and too many connections, with real sockets."""

import json
import socket
import time
from contextlib import ExitStack, suppress
from urllib.parse import urlsplit

import pytest

from histolumen.view.app import create_app
from histolumen.view.items import Library
from histolumen.view.limits import Limits, client_of
from histolumen.view.settings import ViewSettings

QUICK = {"head_seconds": 0.6, "stall_seconds": 0.8, "stall_bytes": 5000, "body_seconds": 3}
GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
def start(serving, runs):
    """Start a viewer without images and with the given limits; returns a function that opens a connection to it."""
    with ExitStack() as stack:

        def make(limits, **settings):
            app = create_app(ViewSettings(limits=Limits(**limits), **settings), Library(), runs[:1])
            port = urlsplit(stack.enter_context(serving(app))).port
            return lambda: stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))

        yield make


def answer(connection) -> bytes:
    """Everything until the server closes the connection."""
    received = b""
    with suppress(ConnectionResetError):
        while data := connection.recv(65536):
            received += data
    return received


def seconds_until_closed(connection) -> float:
    started = time.monotonic()
    answer(connection)
    return time.monotonic() - started


def works(connection) -> bool:
    connection.sendall(GET)
    received = b""
    while b"}" not in received:
        received += connection.recv(1000)
    return received.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "])
def test_a_head_that_does_not_arrive_is_given_up(start, sent):
    connection = start(QUICK)()
    connection.sendall(sent)
    assert seconds_until_closed(connection) < 5


def test_a_head_that_arrives_byte_by_byte_is_given_up(start):
    connection = start(QUICK)()
    started = time.monotonic()
    with pytest.raises(OSError):
        for byte in b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 1000:
            connection.sendall(bytes([byte]))
            time.sleep(0.05)
    assert time.monotonic() - started < 5


def test_slow_clients_do_not_keep_others_out(start):
    connect = start(QUICK | {"connections": 8, "connections_of_client": 8})
    slow = [connect() for _ in range(8)]
    for each in slow:
        each.sendall(b"GET / HTTP/1.1\r\n")
    refused = answer(connect())
    assert refused.startswith(b"HTTP/1.1 503")
    assert b"Retry-After" in refused
    assert all(answer(each) == b"" for each in slow)
    assert works(connect())


def test_one_client_cannot_take_all_connections(start):
    connect = start({"connections": 8, "connections_of_client": 2})
    held = [connect(), connect()]
    assert answer(connect()).startswith(b"HTTP/1.1 503")
    assert works(held[0])
    held[1].close()
    time.sleep(0.2)
    assert works(connect())


def test_a_connection_in_use_is_kept_beyond_the_time_for_a_head(start):
    connection = start(QUICK)()
    until = time.monotonic() + 2.0
    while time.monotonic() < until:
        assert works(connection)
        time.sleep(0.1)


def test_a_body_that_stalls_is_given_up_and_deleted(start, runs):
    connect = start(QUICK)
    connection = connect()
    connection.sendall(b"POST /api/uploads HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\nabc")
    assert seconds_until_closed(connection) < 5
    assert works(connect())


def test_a_body_that_moves_slowly_gets_the_time_for_a_body_and_not_more(start):
    connection = start(QUICK | {"stall_bytes": 1, "body_seconds": 1.5})()
    connection.sendall(b"POST /api/uploads HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n")
    started = time.monotonic()
    connection.settimeout(0.05)
    received = b""
    with suppress(OSError):
        while not received and time.monotonic() - started < 10:
            connection.sendall(b"x")
            with suppress(TimeoutError):
                received = connection.recv(1000)
    assert 1.3 < time.monotonic() - started < 8
    assert received.startswith(b"HTTP/1.1 408")


def test_a_client_that_does_not_read_is_given_up(start):
    connect = start(QUICK)
    connection = connect()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    request = b"GET /static/vendor/openseadragon.min.js HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with suppress(OSError):
        for _ in range(200):  # more than the system buffers
            connection.sendall(request)
    time.sleep(3)
    connection.settimeout(5)
    with pytest.raises(OSError):  # the server has cut it
        for _ in range(2000):
            connection.sendall(request)
            time.sleep(0.002)
    assert works(connect())


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: " + b"y" * 1_000_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"POST /api/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /api/predict HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_garbage_gets_400_or_nothing(start, garbage):
    connect = start(QUICK)
    connection = connect()
    with suppress(OSError):
        connection.sendall(garbage)
    assert answer(connection)[:12] in {b"HTTP/1.1 400", b"HTTP/1.1 421", b""}
    assert works(connect())


def test_a_prediction_nobody_waits_for_is_not_computed(start, serving, runs):
    import threading

    app = create_app(ViewSettings(), Library(), runs[:1])
    worker = app.state.viewer.predictor.worker
    gate, running = threading.Event(), threading.Event()
    with serving(app) as address:
        worker.submit(lambda _: (running.set(), gate.wait(20)))
        assert running.wait(20)
        body = b"x" * 1000
        with socket.create_connection(("127.0.0.1", urlsplit(address).port)) as connection:
            head = f"POST /api/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
            connection.sendall(head.encode() + body)
            wait_until(lambda: worker.waiting == 1)
        try:
            wait_until(lambda: worker.waiting == 0)  # the client has gone: its place is free
            wait_until(lambda: list(app.state.viewer.uploads.folder.iterdir()) == [])
        finally:
            gate.set()


def test_a_prediction_that_takes_too_long_is_refused_with_503(start, runs, serving):
    import threading
    import urllib.error
    import urllib.request

    app = create_app(ViewSettings(limits=Limits(predict_seconds=0.3)), Library(), runs[:1])
    gate = threading.Event()
    with serving(app) as address:
        app.state.viewer.predictor.worker.submit(lambda _: gate.wait(20))
        try:
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(f"{address}/api/predict", data=b"x", timeout=20)
            assert refused.value.code == 503
            assert int(refused.value.headers["Retry-After"]) >= 1
            assert "detail" in json.load(refused.value)
        finally:
            gate.set()


def wait_until(condition):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("address", "client"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::ffff", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("name", "name"),
    ],
)
def test_a_client_is_an_address_or_an_ipv6_network(address, client):
    assert client_of(address) == client
