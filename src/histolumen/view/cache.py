"""A least-recently-used cache that is bounded in bytes and computes each value once."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")


class BoundedCache(Generic[T]):
    """Keeps the values used last, up to `capacity` bytes, and at least the newest one.

    Args:
        capacity: total size in bytes.
        size_of: size of a value in bytes.
    """

    def __init__(self, capacity: int, size_of: Callable[[T], int]):
        self._capacity, self._size_of = capacity, size_of
        self._values: OrderedDict[Hashable, T] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()
        self._making: dict[Hashable, threading.Lock] = {}

    def get(self, key: Hashable) -> T | None:
        """The value, which becomes the most recently used one; None if it is not stored."""
        with self._lock:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
            return value

    def put(self, key: Hashable, value: T) -> None:
        """Store a value and drop the least recently used ones that no longer fit."""
        with self._lock:
            if key in self._values:
                self._drop(key)
            self._values[key] = value
            self._bytes += self._size_of(value)
            while self._bytes > self._capacity and len(self._values) > 1:
                self._drop(next(iter(self._values)))

    def get_or_make(self, key: Hashable, make: Callable[[], T]) -> T:
        """The stored value, or a new one; threads that need the same value wait for the first of them."""
        value = self.get(key)
        if value is not None:
            return value
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        with making:
            value = self.get(key)
            if value is None:
                try:
                    value = make()
                    self.put(key, value)
                finally:
                    with self._lock, suppress(KeyError):
                        del self._making[key]
        return value

    def remove(self, key: Hashable) -> None:
        """Drop a value if it is stored."""
        with self._lock:
            if key in self._values:
                self._drop(key)

    def _drop(self, key: Hashable) -> None:
        self._bytes -= self._size_of(self._values.pop(key))
