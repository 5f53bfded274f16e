"""Distribution of work to processes and machines by dask.distributed, which reschedules the items of lost workers."""

import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from histolumen.errors import ConfigError
from histolumen.extras import require
from histolumen.threads import share_among

if TYPE_CHECKING:
    from distributed import Client

_CONNECT_TIMEOUT = "30s"
Item = TypeVar("Item")
Result = TypeVar("Result")


@contextmanager
def connect(address: str | None, workers: int = 1) -> Iterator["Client"]:
    """Client of the dask scheduler at `address`; if None, of a local cluster with `workers` processes."""
    require("cluster", "distributed")
    from dask import config  # noqa: PLC0415 - an extra
    from distributed import Client, LocalCluster  # noqa: PLC0415

    if address is not None:
        try:
            client = Client(address, timeout=_CONNECT_TIMEOUT)
        except (OSError, ValueError) as error:
            raise ConfigError(f"--cluster {address}: no dask scheduler answers ({error})") from error
        with client:
            yield client
        return
    settings = {
        "distributed.worker.daemon": False,  # daemonic processes cannot start loader processes
        "distributed.nanny.pre-spawn-environ.OMP_NUM_THREADS": str(share_among(workers)),
        "distributed.nanny.pre-spawn-environ.OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE"),
    }
    with (
        config.set(settings),
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            dashboard_address=None,  # type: ignore[arg-type] - its documentation allows None
            memory_limit=None,
            silence_logs=50,
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def run_on_workers(
    client: "Client", function: Callable[[Item], Result], items: Sequence[Item]
) -> Iterator[tuple[Item, Result | Exception]]:
    """Apply `function` to each item and yield each result when it is ready.

    The item of a lost worker is rescheduled. The result is an exception if `function` raised it, or if too many workers
    were lost.
    """
    from distributed import as_completed  # noqa: PLC0415 - an extra

    name = getattr(function, "__name__", "work")
    futures = {
        # a unique key: the scheduler may still hold tasks of an interrupted call
        client.submit(function, item, key=f"{name}-{uuid.uuid4().hex}", pure=False): item
        for item in items
    }
    for future in as_completed(list(futures)):
        error = future.exception()
        yield futures[future], future.result() if error is None else error
