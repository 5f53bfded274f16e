"""What the viewer refuses: too large, too many, malformed, from elsewhere, outside its folders."""

import errno
import hmac
import io
import threading
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from histolumen.errors import ConfigError
from histolumen.view.app import create_app
from histolumen.view.items import Library
from histolumen.view.limits import Limits
from histolumen.view.security import COOKIE
from histolumen.view.settings import ViewSettings, is_loopback
from histolumen.view.uploads import display_name

LOCAL = "http://127.0.0.1:8000"


def png(width=64, height=64):
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)).save(buffer, format="PNG")
    return buffer.getvalue()


@pytest.fixture
def connect(runs):
    """A client of a viewer with the given settings and without images, which starts quickly."""
    opened = []

    def make(base_url=LOCAL, **settings):
        client = TestClient(create_app(ViewSettings(**settings), Library(), runs[:1]), base_url=base_url)
        client.__enter__()
        opened.append(client)
        return client

    yield make
    for client in opened:
        client.__exit__(None, None, None)


def uploads_folder(client) -> Path:
    return client.app.state.viewer.uploads.folder


@pytest.mark.parametrize("route", ["/api/uploads", "/api/predict"])
def test_bodies_over_the_limit_are_refused(connect, route):
    client = connect(upload_bytes=1000)
    assert client.post(route, content=b"x" * 1001).status_code == 413
    stream = (b"x" * 100 for _ in range(50))  # without a stated length
    assert client.post(route, content=stream).status_code == 413
    assert list(uploads_folder(client).iterdir()) == []


@pytest.mark.parametrize("route", ["/api/uploads", "/api/predict"])
def test_images_with_too_many_pixels_are_refused_before_decoding(connect, route):
    client = connect(upload_pixels=5000)
    response = client.post(route, content=png(100, 51))
    assert response.status_code == 422
    assert "5,000" in response.json()["detail"]


@pytest.mark.parametrize("route", ["/api/uploads?name=x.png", "/api/predict"])
@pytest.mark.parametrize(
    "body",
    [b"", b"no image", png()[:200], b"<svg/>", b"\x89PNG\r\n\x1a\n" + bytes(50)],
    ids=["empty", "text", "cut", "svg", "zeros"],
)
def test_malformed_images_get_a_message_without_paths(connect, route, body):
    client = connect()
    response = client.post(route, content=body)
    assert response.status_code == 422
    assert str(uploads_folder(client)) not in response.text
    assert list(uploads_folder(client).iterdir()) == []


def test_a_full_queue_answers_503_with_retry_after(connect):
    client = connect(queue=2)
    item = client.post("/api/uploads", content=png()).json()["id"]
    worker = client.app.state.viewer.predictor.worker
    gate, running = threading.Event(), threading.Event()
    worker.submit(lambda _: (running.set(), gate.wait(20)))
    assert running.wait(20)
    jobs = [worker.submit(lambda _: None) for _ in range(2)]
    try:
        for response in (
            client.post("/api/predict", content=png()),
            client.post("/api/uploads", content=png()),
            client.post(f"/api/items/{item}/predictions/0"),
        ):
            assert response.status_code == 503
            assert int(response.headers["Retry-After"]) >= 1
    finally:
        gate.set()
    for job in jobs:
        job.future.result(20)
    assert client.post("/api/predict", content=png()).status_code == 200


def test_old_uploads_make_room_for_new_ones_and_all_are_deleted_at_the_end(runs):
    with TestClient(create_app(ViewSettings(uploads=2), Library(), runs[:1]), base_url=LOCAL) as client:
        ids = [client.post(f"/api/uploads?name={n}.png", content=png()).json()["id"] for n in range(3)]
        assert client.get(f"/api/items/{ids[0]}").status_code == 404
        assert client.get(f"/api/items/{ids[2]}").json()["name"] == "2.png"
        folder = uploads_folder(client)
        assert {entry.name for entry in folder.iterdir()} == set(ids[1:])
        client.put(f"/api/items/{ids[2]}/correction", content=png())
        assert client.get(f"/api/items/{ids[2]}/correction.png").status_code == 200
    assert not folder.exists()


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("../../etc/passwd", "passwd"),
        ("C:\\x\\y.png", "y.png"),
        ("a\x00\n.png", "a.png"),
        ("", "image"),
        ("é/", "image"),
    ],
)
def test_names_of_uploads_are_for_display_only(connect, given, shown):
    assert display_name(given) == shown


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/..%2fapp.py",
        "/static/%2e%2e/%2e%2e/cli/view.py",
        "/static//etc/passwd",
        "/static/vendor",
        "/api/items/..%2f..%2fmanifest.csv",
        "/api/items/../../manifest.csv",
        "/api/items/%2fetc%2fpasswd/thumbnail.jpg",
        "/api/items/x/tiles/0/0_0.jpg",
        "/api/items/x/correction.png",
        "/app.py",
    ],
)
def test_paths_of_requests_do_not_reach_the_file_system(connect, path):
    assert connect().get(path).status_code == 404


def test_every_response_has_the_security_headers(connect):
    client = connect()
    for response in (
        client.get("/"),
        client.get("/api/items"),
        client.get("/none"),
        client.get("/healthz", headers={"Host": "evil"}),
    ):
        assert response.headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self'")
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["X-Frame-Options"] == "DENY"
        assert response.headers["Referrer-Policy"] == "no-referrer"


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "[::2]", "["])
def test_other_names_of_this_machine_are_refused(connect, host):
    assert connect().get("/api/items", headers={"Host": host}).status_code == 421


@pytest.mark.parametrize("host", ["localhost", "localhost:8000", "127.0.0.1:9", "[::1]:8000"])
def test_loopback_names_are_answered(connect, host):
    assert connect().get("/api/items", headers={"Host": host}).status_code == 200


def test_other_sites_cannot_change_anything(connect):
    client = connect()
    refused = client.post("/api/uploads", content=png(), headers={"Origin": "http://evil.example"})
    assert refused.status_code == 403
    for headers in ({"Origin": "null"}, {"Origin": "http://["}, {"Origin": ""}, {"Sec-Fetch-Site": "cross-site"}):
        assert client.post("/api/predict", content=png(), headers=headers).status_code == 403
        assert client.delete("/api/items/x", headers=headers).status_code == 403
    for headers in ({"Origin": LOCAL, "Sec-Fetch-Site": "same-origin"}, {}):
        assert client.post("/api/uploads", content=png(), headers=headers).status_code == 201


def test_a_token_is_needed_wherever_one_is_set(connect):
    client = connect("http://pathology.example", host="0.0.0.0", token="secret-1")
    for path in ("/", "/api/items", "/openapi.json", "/static/main.js"):
        assert client.get(path).status_code == 401
    assert client.get("/?token=wrong").status_code == 401
    assert client.get("/healthz").status_code == 200
    assert client.get("/api/items", headers={"Authorization": "Bearer wrong"}).status_code == 401
    header = {"Authorization": "Bearer secret-1"}
    assert client.get("/api/items", headers=header).status_code == 200
    entered = client.get("/?token=secret-1", follow_redirects=False)
    assert entered.status_code == 303
    cookie = entered.headers["set-cookie"]
    assert COOKIE in cookie
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert client.get("/api/items").status_code == 200  # by cookie


def test_tokens_cannot_be_guessed_by_trying(connect):
    client = connect("http://pathology.example", host="0.0.0.0", token="secret-1", limits=Limits(wrong_tokens=3))
    for guess in ("a", "b", "c"):
        assert client.get("/api/items", headers={"Authorization": f"Bearer {guess}"}).status_code == 401
    for guess in ("d", "secret-1"):  # also the right one: an answer would tell it
        refused = client.get("/api/items", headers={"Authorization": f"Bearer {guess}"})
        assert refused.status_code == 429
        assert int(refused.headers["Retry-After"]) >= 1
    assert client.get("/?token=e").status_code == 429
    other = TestClient(client.app, base_url="http://pathology.example", client=("10.0.0.2", 1))
    assert other.get("/api/items", headers={"Authorization": "Bearer secret-1"}).status_code == 200


def test_tokens_are_compared_in_constant_time(connect, monkeypatch):
    compared = []
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: compared.append((a, b)) or a == b)
    client = connect(host="0.0.0.0", token="secret-1")
    client.get("/", headers={"Authorization": "Bearer sec"})
    assert compared == [(b"sec", b"secret-1")]


def test_a_server_for_others_needs_a_token_of_some_length():
    with pytest.raises(ConfigError, match="--token"):
        create_app(ViewSettings(host="0.0.0.0"), Library(), [])
    with pytest.raises(ValueError, match="token"):
        ViewSettings(host="0.0.0.0", token="short")


def test_an_upload_is_deleted_on_request_and_nothing_else_is(connect, make_app):
    client = connect()
    item = client.post("/api/uploads", content=png()).json()["id"]
    client.get(f"/api/items/{item}/thumbnail.jpg")
    assert client.delete(f"/api/items/{item}").status_code == 204
    assert list(uploads_folder(client).iterdir()) == []
    for url in ("", "/thumbnail.jpg"):
        assert client.get(f"/api/items/{item}{url}").status_code == 404
    assert client.delete(f"/api/items/{item}").status_code == 404
    with TestClient(make_app(), base_url=LOCAL) as viewer:
        own = viewer.get("/api/items").json()["items"][0]["id"]
        assert viewer.delete(f"/api/items/{own}").status_code == 409
        assert viewer.get(f"/api/items/{own}").status_code == 200


def test_a_full_disk_is_503_without_paths(connect, monkeypatch):
    client = connect()
    folder = uploads_folder(client)

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device", str(folder))

    monkeypatch.setattr(Path, "mkdir", full)
    for route in ("/api/uploads", "/api/predict"):
        response = client.post(route, content=png())
        assert response.status_code == 503
        assert str(folder) not in response.text


def test_bodies_of_one_client_leave_room_for_others(connect):
    """Half of the places, so that the other half is for others."""
    client = connect(queue=2)
    client.app.state.viewer.uploads._receiving["testclient"] = 1
    assert client.post("/api/predict", content=png()).status_code == 503
    other = TestClient(client.app, base_url=LOCAL, client=("10.0.0.2", 1))
    other.portal = client.portal  # one event loop
    assert other.post("/api/predict", content=png()).status_code == 200


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("localhost", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("10.0.0.1", False),
        ("localhost.x", False),
    ],
)
def test_loopback(host, loopback):
    assert is_loopback(host) == loopback
