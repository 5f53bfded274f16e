"""Prediction of many images: while the network runs, one thread prepares the next images, another writes the last ones.

Everything that is remembered (names, records, failures, the table) is done by the calling thread, in the order of the
images, so that results do not depend on which thread is faster. The number of images in memory is bounded.
"""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, TypeVar

from histolumen.engine.memory import FreedMemory, return_freed_memory
from histolumen.engine.model import Model
from histolumen.engine.prediction import Prediction, Predictor

_AHEAD = 2  # images that are prepared before the network is free
_BEHIND = 2  # images that wait to be written; with more, the network waits
Key = TypeVar("Key")
Answer = Callable[[], Prediction]
"""The last stage of a prediction."""


class Predictions:
    """Answers for files in the given order; the next files are prepared meanwhile.

    Args:
        model: a trained model, or an exported one, whose stages are not overlapped.
        paths: the files, in the order in which they will be asked for; files that are not asked for are skipped.
    """

    def __init__(self, model: Predictor, paths: Sequence[Path]):
        self._model = model
        self._upcoming = deque(paths)
        self._ahead: deque[tuple[Path, Future[Any]]] = deque()
        self._freed = FreedMemory()
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="prepare")

    def __enter__(self) -> "Predictions":
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.shutdown(cancel_futures=True)
        return_freed_memory()

    def of(self, path: Path) -> Answer:
        """Run the network on a file; raises what reading or predicting it raises."""
        model = self._model
        if not isinstance(model, Model):
            prediction = model.predict(path)
            return lambda: prediction
        prepared = self._prepared(model, path)
        output = model.run(prepared)
        self._freed.after_prediction()
        return lambda: model.finish(prepared, output)

    def _prepared(self, model: Model, path: Path) -> Any:
        if path not in (item for item, _ in self._ahead) and path not in self._upcoming:
            return model.prepare(path)
        while self._ahead and self._ahead[0][0] != path:  # not asked for
            self._ahead.popleft()[1].cancel()
        while not self._ahead and self._upcoming[0] != path:
            self._upcoming.popleft()
        while self._upcoming and len(self._ahead) <= _AHEAD:
            upcoming = self._upcoming.popleft()
            self._ahead.append((upcoming, self._reader.submit(model.prepare, upcoming)))
        return self._ahead.popleft()[1].result()


class InOrder(Generic[Key]):
    """Work in a thread of its own, whose outcomes are settled in the order in which it was added.

    Args:
        settle: called by the adding thread with each key and a function that returns the outcome or raises its error.
    """

    def __init__(self, settle: Callable[[Key, Callable[[], Any]], None]):
        self._settle = settle
        self._pending: deque[tuple[Key, Future[Any]]] = deque()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="write")

    def add(self, key: Key, work: Callable[[], Any]) -> None:
        """Do `work` in the background; waits while too much is waiting."""
        self._append(key, self._writer.submit(work))

    def add_error(self, key: Key, error: Exception) -> None:
        """Something that failed before it could be added, settled in its turn."""
        failed: Future[Any] = Future()
        failed.set_exception(error)
        self._append(key, failed)

    def add_outcome(self, key: Key, outcome: Any) -> None:
        """Something that is done already, settled in its turn."""
        done: Future[Any] = Future()
        done.set_result(outcome)
        self._append(key, done)

    def waits_for(self, matches: Callable[[Key], bool]) -> bool:
        """Whether something that matches is not settled yet."""
        return any(matches(key) for key, _ in self._pending)

    def finish(self) -> None:
        """Wait for everything, and settle it."""
        while self._pending:
            self._next()

    def __enter__(self) -> "InOrder[Key]":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """After an interruption, what is being written is finished and settled too."""
        try:
            while self._pending:
                try:
                    self._next()
                except Exception:  # while another error passes through, that one is reported
                    if error is None:
                        raise
        finally:
            self._writer.shutdown(cancel_futures=True)

    def _append(self, key: Key, future: Future[Any]) -> None:
        self._pending.append((key, future))
        while len(self._pending) > _BEHIND or (self._pending and self._pending[0][1].done()):
            self._next()

    def _next(self) -> None:
        key, future = self._pending.popleft()
        self._settle(key, future.result)
