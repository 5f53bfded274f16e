import pytest
from distributed import LocalCluster

from histolumen.engine import workers
from histolumen.errors import ConfigError


def halve(number: int) -> int:
    if number % 2:
        raise ValueError(f"{number} is odd")
    return number // 2


def test_results_and_exceptions_come_back_with_their_items():
    with (
        LocalCluster(n_workers=1, processes=False, dashboard_address=None) as cluster,
        workers.connect(cluster.scheduler_address) as client,
    ):
        results = dict(workers.run_on_workers(client, halve, [2, 3, 4]))
    assert (results[2], results[4]) == (1, 2)
    assert isinstance(results[3], ValueError)


def test_a_missing_scheduler_is_an_error(monkeypatch):
    monkeypatch.setattr(workers, "_CONNECT_TIMEOUT", "1s")
    with pytest.raises(ConfigError, match="no dask scheduler answers"), workers.connect("tcp://127.0.0.1:1"):
        pass
