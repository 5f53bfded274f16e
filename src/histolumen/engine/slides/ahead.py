"""Threads that prepare the input of the network while it runs."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from histolumen.lanes import give_way

Item = TypeVar("Item")
Prepared = TypeVar("Prepared")


def prepared_ahead(
    items: Iterable[Item], prepare: Callable[[Item], Prepared], threads: int
) -> Iterator[tuple[Item, Prepared]]:
    """Yield items with what `prepare` makes of them; threads prepare the next few in advance.

    `prepare` should leave large tensors alone: torch would start further threads for each of these threads, which
    compete with those of the network.

    Args:
        items: no more than two per thread are prepared in advance.
        prepare: called in one of the threads.
        threads: how many.
    """
    ahead: deque[tuple[Item, Future[Prepared]]] = deque()
    with ThreadPoolExecutor(threads, initializer=give_way) as pool:
        for item in items:
            ahead.append((item, pool.submit(prepare, item)))
            if len(ahead) == 2 * threads:
                yield _finished(*ahead.popleft())
        while ahead:
            yield _finished(*ahead.popleft())


def _finished(item: Item, prepared: Future[Prepared]) -> tuple[Item, Prepared]:
    return item, prepared.result()
