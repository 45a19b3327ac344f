"""Values that take long to make, and are asked for again and again."""

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Recent(Generic[Key, Value]):
    """Keeps the values that were asked for last."""

    def __init__(self, most: int, size: Callable[[Value], int] = lambda _: 1) -> None:
        """Keep at most so many; or values of this size together, but always the last."""
        self._most, self._size, self._total = most, size, 0
        self._kept: OrderedDict[Key, Value] = OrderedDict()
        self._making: dict[Key, Lock] = {}
        self._lock = Lock()

    def get(self, key: Key, make: Callable[[], Value]) -> Value:
        """Return the value of a key; it is made if it is not kept any more, once for all who wait for it."""
        with self._lock:
            if key in self._kept:
                return self._again(key)
            being_made = self._making.setdefault(key, Lock())
        with being_made:
            with self._lock:
                if key in self._kept:
                    return self._again(key)
            try:
                value = make()
                with self._lock:
                    return self._keep(key, value)
            finally:
                with self._lock:
                    self._making.pop(key, None)

    def _again(self, key: Key) -> Value:
        self._kept.move_to_end(key)
        return self._kept[key]

    def _keep(self, key: Key, value: Value) -> Value:
        self._kept[key] = value
        self._total += self._size(value)
        while len(self._kept) > 1 and self._total > self._most:
            self._total -= self._size(self._kept.popitem(last=False)[1])
        return value
