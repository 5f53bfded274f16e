"""One thread that runs the network: a bounded queue of requests, and background work while it is empty."""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from histolumen.progress import Progress

T = TypeVar("T")
_SMOOTHING = 0.2  # weight of the newest duration in the running mean


class QueueFullError(Exception):
    """The queue has no place left; `retry_after` is the time in seconds after which there may be one."""

    def __init__(self, retry_after: int):
        super().__init__("the queue is full")
        self.retry_after = retry_after


class Job(Progress):
    """A unit of work for the network; receives the progress of the function that it runs."""

    def __init__(self, work: Callable[["Job"], Any]):
        self._work = work
        self.future: Future[Any] = Future()
        self.activity = "waiting"
        self.done, self.total = 0, 0

    def track(self, items: Sequence[T], description: str) -> Iterable[T]:
        self.activity, self.done, self.total = description, 0, len(items)
        for item in items:
            yield item
            self.done += 1

    def run(self) -> None:
        """Run the work and store its result or its error."""
        self.activity = "predicting"
        try:
            result = self._work(self)
        except BaseException as error:  # noqa: BLE001 - raised again where the result is read
            self.future.set_exception(error)
        else:
            self.future.set_result(result)


class Worker:
    """Runs jobs one by one in a thread of its own.

    Args:
        limit: number of jobs that may wait.
        idle: does one piece of background work and returns whether there is more; called while no job waits.
    """

    def __init__(self, limit: int, idle: Callable[[], bool] = lambda: False):
        self._limit, self._idle = limit, idle
        self._jobs: deque[Job] = deque()
        self._changed = threading.Condition()
        self._stopped = False
        self._seconds = 1.0  # running mean of the duration of a job
        self._thread = threading.Thread(target=self._run, name="network", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Finish the current job, cancel the others."""
        with self._changed:
            self._stopped = True
            while self._jobs:
                self._jobs.popleft().future.cancel()
            self._changed.notify_all()
        with suppress(RuntimeError):  # never started
            self._thread.join(timeout=5)

    @property
    def waiting(self) -> int:
        """Number of jobs that wait."""
        return len(self._jobs)

    def check_room(self) -> None:
        """Raise `QueueFullError` if a job would be refused now; called before a request body is read."""
        if len(self._jobs) >= self._limit:
            raise QueueFullError(max(1, math.ceil(self._seconds * len(self._jobs))))

    def submit(self, work: Callable[[Job], Any]) -> Job:
        """Queue `work`, or raise `QueueFullError`."""
        job = Job(work)
        with self._changed:
            self.check_room()
            self._jobs.append(job)
            self._changed.notify_all()
        return job

    def position(self, job: Job) -> int:
        """Number of jobs before this one; 0 if it runs or is done."""
        with self._changed:
            return self._jobs.index(job) + 1 if job in self._jobs else 0

    def wake(self) -> None:
        """Tell the thread that there is background work again."""
        with self._changed:
            self._changed.notify_all()

    def _run(self) -> None:
        more = True
        while True:
            with self._changed:
                while not (self._jobs or self._stopped or more):
                    self._changed.wait()
                    more = True
                if self._stopped:
                    return
                job = self._jobs.popleft() if self._jobs else None
            if job is None:
                more = self._idle()
                continue
            if job.future.set_running_or_notify_cancel():
                started = time.perf_counter()
                job.run()
                self._seconds += _SMOOTHING * (time.perf_counter() - started - self._seconds)
