"""Threads that prepare the input of the network while it runs."""

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Prepared = TypeVar("Prepared")
_NICE = 5


def prepared_ahead(
    order: Iterable[Item], items: Sequence[Item], prepare: Callable[[Item], Prepared], threads: int
) -> Iterator[tuple[Item, Prepared]]:
    """Yield items with what `prepare` makes of them; threads prepare the next few in advance.

    `prepare` should leave large tensors alone: torch would start further threads for each of these threads, which
    compete with those of the network.

    Args:
        order: the items, followed by a progress bar for example.
        items: the same items; no more than two per thread are prepared in advance.
        prepare: called in one of the threads.
        threads: how many.
    """
    ahead: list[Future[Prepared]] = []
    upcoming = iter(items)
    with ThreadPoolExecutor(threads, initializer=_give_way) as pool:
        for item in order:
            while len(ahead) < 2 * threads and (following := next(upcoming, None)) is not None:
                ahead.append(pool.submit(prepare, following))
            yield item, ahead.pop(0).result()


def _give_way() -> None:
    """Lower the priority of this thread.

    A layer of the network ends when its last thread does. If that one shares its core with a thread that prepares a
    later tile, all the others wait. With a lower priority, tiles are prepared while threads of the network wait.
    """
    if sys.platform == "linux":  # elsewhere, priorities belong to processes
        with contextlib.suppress(OSError):  # not allowed in some containers, and not needed
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), os.getpriority(os.PRIO_PROCESS, 0) + _NICE)
