"""The same work on many slides, in this process or in several."""

import signal
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any, TypeVar

from histolumen.errors import HistolumenError, RunError

Task = TypeVar("Task")
Result = TypeVar("Result")
Track = Callable[[Sequence[Any], str], Iterable[Any]]
"""Wraps a sequence, with a word on what is done, to show progress."""


def for_each(
    work: Callable[[Task], Result], tasks: Sequence[Task], workers: int, track: Track, doing: str
) -> list[Result | HistolumenError]:
    """Results in the order of the tasks; a task that fails gives its error, the others go on.

    Args:
        work: a function of a module, so that other processes find it.
        tasks: what it is called with.
        workers: processes; 1 works in this one.
        track: shows progress.
        doing: what is done, for the progress.
    """
    workers = min(workers, len(tasks))
    if workers <= 1:
        return [_result(work, task) for task in track(tasks, doing)]
    # spawned, not forked: OpenSlide and vips hold threads and open files that a fork would share
    pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=_leave_interrupts_to_parent)
    try:
        futures: list[Future[Result | HistolumenError]] = [pool.submit(_result, work, task) for task in tasks]
        return [future.result() for future in track(futures, doing)]
    except BrokenProcessPool as error:
        raise RunError(
            f"a worker process was ended from outside while {doing}, perhaps for want of memory; "
            "run again with fewer --workers: what is done is kept"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _result(work: Callable[[Task], Result], task: Task) -> Result | HistolumenError:
    try:
        return work(task)
    except HistolumenError as error:
        return error.with_traceback(None)


def _leave_interrupts_to_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
