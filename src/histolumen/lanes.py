"""Independent passes of a network side by side on a CPU, each in a lane: a thread with its share of the processors.

Torch divides every layer of a pass among its threads, which wait for each other after each layer; small layers are not
worth dividing. Passes that do not depend on each other run at the same time instead, each on few threads: the more it
gains, the smaller their input is (docs/performance.md). Each pass computes the same as it would alone.
"""

import contextlib
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")

MOST_LANES = 4
"""Passes at the same time; each holds its activations in memory."""
_NICE = 5
_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}
_pools_lock = threading.Lock()
_this_thread = threading.local()


def lanes_for(count: int, device: torch.device) -> int:
    """How many of `count` passes run at the same time: 1 inside a lane, where torch has one thread, and on a GPU."""
    if getattr(_this_thread, "is_lane", False) or device.type != "cpu":
        return 1
    return max(1, min(count, torch.get_num_threads(), MOST_LANES))


def side_by_side(run: Callable[[Item], Result], items: Sequence[Item], device: torch.device) -> list[Result]:
    """The results of `run(item)`, in the order of the items.

    Args:
        run: a pass of a network; several threads call it at the same time, with the modes of torch of this thread.
        items: its inputs, for example the flips of an image.
        device: of the network.
    """
    return list(stream(run, items, lanes_for(len(items), device)))


def stream(run: Callable[[Item], Result], items: Iterable[Item], lanes: int) -> Generator[Result]:
    """Yield the results of `run(item)` in the order of the items, which are taken when a lane is about to be free.

    Args:
        run: as for `side_by_side`.
        items: its inputs, for example the tiles of a slide.
        lanes: of `lanes_for`; 1: in the calling thread.
    """
    if lanes == 1:
        yield from map(run, items)
        return
    pool, modes = _pool(lanes), _modes()
    passes: deque[Future[Result]] = deque()
    try:
        for item in items:
            passes.append(pool.submit(_with_modes, modes, run, item))
            if len(passes) > lanes:
                yield passes.popleft().result()
        while passes:
            yield passes.popleft().result()
    finally:  # after an error or an interruption nothing runs on
        for each in passes:
            each.cancel()
        wait(passes)


@contextlib.contextmanager
def meanwhile(run: Callable[[], Result]) -> Iterator[Future[Result]]:
    """Within the block, run something that needs little: in a thread with one processor that gives way to all others.

    The block ends when `run` has returned, also after an error.
    """
    threads = torch.get_num_threads()
    pool = _started(1, 1)
    torch.set_num_threads(threads)
    pool.submit(give_way)
    future = pool.submit(_with_modes, _modes(), lambda _: run(), None)
    try:
        yield future
    finally:
        pool.shutdown()


def give_way() -> None:
    """Lower the priority of this thread.

    A layer of the network ends when its last thread does. If that one shares its core with a thread that does something
    else, all the others wait. With a lower priority, other work is done while threads of the network wait.
    """
    if sys.platform == "linux":  # elsewhere, priorities belong to processes
        with contextlib.suppress(OSError):  # not allowed in some containers, and not needed
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), os.getpriority(os.PRIO_PROCESS, 0) + _NICE)


def _modes() -> tuple[bool, bool, bool, torch.dtype]:
    """The modes of torch, which belong to a thread."""
    autocast = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
    return torch.is_inference_mode_enabled(), torch.is_grad_enabled(), *autocast


def _with_modes(modes: tuple[bool, bool, bool, torch.dtype], run: Callable[[Item], Result], item: Item) -> Result:
    inference, gradients, autocast, dtype = modes
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.inference_mode(inference))
        stack.enter_context(torch.set_grad_enabled(gradients))
        stack.enter_context(torch.autocast("cpu", enabled=autocast, dtype=dtype))
        return run(item)


def _pool(lanes: int) -> ThreadPoolExecutor:
    """Threads that stay, since each keeps freed memory for its next pass."""
    threads = torch.get_num_threads()
    key = lanes, threads // lanes
    with _pools_lock:
        if key not in _pools:
            _pools[key] = _started(*key)
            torch.set_num_threads(threads)  # setting that of a lane also sets the number for threads that start later
        return _pools[key]


def _started(lanes: int, threads_each: int) -> ThreadPoolExecutor:
    everyone = threading.Barrier(lanes)

    def start() -> None:
        _this_thread.is_lane = True
        torch.get_num_threads()  # the first call in a thread would undo an earlier setting
        torch.set_num_threads(threads_each)
        everyone.wait()

    pool = ThreadPoolExecutor(lanes, thread_name_prefix="lane")
    wait([pool.submit(start) for _ in range(lanes)])
    return pool


if hasattr(os, "register_at_fork"):  # threads do not survive a fork
    os.register_at_fork(after_in_child=_pools.clear)
