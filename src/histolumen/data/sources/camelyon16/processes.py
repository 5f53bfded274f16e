"""Run a function for many slides, in this process or in several."""

import signal
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import TypeVar

from histolumen.errors import DiskError, HistolumenError, RunError
from histolumen.progress import Progress

Task = TypeVar("Task")
Result = TypeVar("Result")


def for_each(
    work: Callable[[Task], Result], tasks: Sequence[Task], workers: int, progress: Progress, doing: str
) -> list[Result | HistolumenError]:
    """Results in the order of the tasks; the result of a failed task is its error. A full disk stops all tasks.

    Args:
        work: a module-level function, which can be pickled.
        tasks: its arguments.
        workers: number of processes; 1 runs in this process.
        progress: counts the tasks.
        doing: description for the progress.
    """
    workers = min(workers, len(tasks))
    if workers <= 1:
        return [_go_on(_result(work, task)) for task in progress.track(tasks, doing)]
    # spawned, not forked: OpenSlide and vips hold threads and open files that a fork would share
    pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=_ignore_interrupts)
    try:
        futures: list[Future[Result | HistolumenError]] = [pool.submit(_result, work, task) for task in tasks]
        return [_go_on(future.result()) for future in progress.track(futures, doing)]
    except BrokenProcessPool as error:
        raise RunError(
            f"a worker process was killed while {doing}, perhaps because memory ran out; "
            "run again with fewer --workers: finished slides are kept"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _result(work: Callable[[Task], Result], task: Task) -> Result | HistolumenError:
    try:
        return work(task)
    except HistolumenError as error:
        return error.with_traceback(None)


def _go_on(result: Result | HistolumenError) -> Result | HistolumenError:
    if isinstance(result, DiskError) and result.whole_disk:
        raise result
    return result


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles Ctrl-C
