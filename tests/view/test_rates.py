import pytest
from fastapi.testclient import TestClient

from histolumen.view import rates
from histolumen.view.app import create_app
from histolumen.view.items import Library
from histolumen.view.limits import Limits
from histolumen.view.rates import Bucket, BucketPerClient
from histolumen.view.settings import ViewSettings


def test_a_bucket_gives_its_capacity_at_once_and_then_its_rate():
    bucket = Bucket(rate=2, capacity=3, now=0)
    assert [bucket.take(0) for _ in range(3)] == [0, 0, 0]
    assert bucket.take(0) == pytest.approx(0.5)
    assert bucket.take(0.5) == 0
    assert bucket.take(0.5) > 0
    assert [bucket.take(100) for _ in range(3)] == [0, 0, 0]
    assert bucket.take(100) > 0  # a long pause does not save up more than the capacity


def test_the_memory_of_clients_is_bounded(monkeypatch):
    monkeypatch.setattr(rates, "_CLIENTS", 10)
    buckets = BucketPerClient(1, 1)
    for number in range(1000):
        buckets.of(str(number), 0)
    assert len(buckets._buckets) == 10


def client(address="127.0.0.1", **limits):
    app = create_app(ViewSettings(limits=Limits(burst_seconds=1, **limits)), Library(), [])
    return TestClient(app, base_url="http://127.0.0.1:8000", client=(address, 1))


def test_a_client_above_its_rate_gets_429_and_others_are_answered():
    first = client(requests_of_client_per_second=3, requests_per_second=1000)
    other = TestClient(first.app, base_url="http://127.0.0.1:8000", client=("127.0.0.2", 1))
    statuses = [first.get("/healthz").status_code for _ in range(20)]
    assert statuses[:3] == [200, 200, 200]
    assert 429 in statuses
    refused = first.get("/healthz")
    while refused.status_code == 200:
        refused = first.get("/healthz")
    assert int(refused.headers["Retry-After"]) >= 1
    assert refused.headers["X-Content-Type-Options"] == "nosniff"
    assert other.get("/healthz").status_code == 200


def test_all_clients_together_get_503_above_the_total_rate():
    some = client(requests_of_client_per_second=1000, requests_per_second=3)
    statuses = {some.get("/healthz").status_code for _ in range(30)}
    assert statuses == {200, 503}
