"""One thread that runs the network: a bounded queue of requests, and background work while it is empty."""

import asyncio
import logging
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
_LONGEST_RETRY = 60  # seconds: a slide in between says nothing about the next image
_log = logging.getLogger(__name__)


class QueueFullError(Exception):
    """The queue has no place left; `retry_after` is the time in seconds after which there may be one."""

    def __init__(self, retry_after: int):
        super().__init__("the queue is full")
        self.retry_after = retry_after


class Job(Progress):
    """A unit of work for the network; receives the progress of the function that it runs.

    Args:
        work: computes the result.
        owner: the client that waits for it; empty: none in particular.
    """

    def __init__(self, work: Callable[["Job"], Any], owner: str = ""):
        self._work, self.owner = work, owner
        self.future: Future[Any] = Future()
        self._awaited: asyncio.Future[Any] | None = None
        self.activity = "waiting"
        self.done, self.total = 0, 0

    def track(self, items: Sequence[T], description: str) -> Iterable[T]:
        self.activity, self.done, self.total = description, 0, len(items)
        for item in items:
            yield item
            self.done += 1

    async def wait(self, seconds: float) -> bool:
        """Wait until the job is done or the time is over; returns whether it is done.

        All waiting requests share one asyncio future: one per request would be kept until the job ends, which for a
        slide that many clients ask for every second is memory without limit.
        """
        if self._awaited is None:
            self._awaited = asyncio.wrap_future(self.future)
            self._awaited.add_done_callback(lambda done: done.cancelled() or done.exception())  # not "never retrieved"
        await asyncio.wait([self._awaited], timeout=seconds)
        return self.future.done()

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
        limit: number of jobs that may wait; of one owner, half as many.
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
        """Finish the current job, refuse the others."""
        with self._changed:
            self._stopped = True
            while self._jobs:
                self._jobs.popleft().future.set_exception(QueueFullError(1))
            self._changed.notify_all()
        with suppress(RuntimeError):  # never started
            self._thread.join(timeout=5)

    @property
    def waiting(self) -> int:
        """Number of jobs that wait."""
        return len(self._jobs)

    def check_room(self, owner: str = "") -> None:
        """Raise `QueueFullError` if a job of `owner` would be refused now; called before a request body is read."""
        with self._changed:
            of_owner = sum(job.owner == owner for job in self._jobs) if owner else 0
            if self._stopped or len(self._jobs) >= self._limit or of_owner >= math.ceil(self._limit / 2):
                raise QueueFullError(min(_LONGEST_RETRY, max(1, math.ceil(self._seconds * len(self._jobs)))))

    def submit(self, work: Callable[[Job], Any], owner: str = "") -> Job:
        """Queue `work` of a client, or raise `QueueFullError`."""
        job = Job(work, owner)
        with self._changed:
            self.check_room(owner)
            self._jobs.append(job)
            self._changed.notify_all()
        return job

    def withdraw(self, job: Job) -> None:
        """Take a job that nobody waits for any more out of the queue; one that runs already is finished."""
        with self._changed, suppress(ValueError):
            self._jobs.remove(job)
        job.future.cancel()

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
                more = self._background()
                continue
            if job.future.set_running_or_notify_cancel():
                started = time.perf_counter()
                job.run()
                self._seconds += _SMOOTHING * (time.perf_counter() - started - self._seconds)

    def _background(self) -> bool:
        try:
            return self._idle()
        except Exception:  # noqa: BLE001 - the thread goes on: requests still need it
            _log.exception("background work failed")
            return False
