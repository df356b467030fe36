"""Stages that run at the same time, each in its own thread, with little waiting between them."""

from __future__ import annotations

import threading
from collections.abc import Generator
from queue import Empty, Full, Queue
from typing import Generic, TypeVar

__all__ = ["ahead"]

T = TypeVar("T")

# Seconds between looks at whether anybody still listens.
_PATIENCE = 0.1


def ahead(items: Generator[T, None, None], depth: int = 2) -> Generator[T, None, None]:
    """Yield what `items` yields, computed by a thread that is up to `depth` items ahead.

    An error of the thread is raised where its item would have come. Closing this generator ends the thread.

    Examples
    --------
    >>> list(ahead((n * n for n in range(4))))
    [0, 1, 4, 9]
    """
    stage = _Stage(items, depth)
    try:
        while not isinstance(item := stage.waiting.get(), _End):
            yield item
        if item.error is not None:
            raise item.error
    finally:
        stage.stop()


class _End:
    """Comes after the last item, with what went wrong if anything did."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


class _Stage(Generic[T]):
    def __init__(self, items: Generator[T, None, None], depth: int) -> None:
        self.items = items
        self.waiting: Queue[T | _End] = Queue(depth)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        # Whatever nobody took is let go of here, not whenever the last reference goes.
        try:
            while True:
                self.waiting.get_nowait()
        except Empty:
            return

    def _work(self) -> None:
        try:
            for item in self.items:
                if not self._put(item):
                    break
            self.items.close()
        except BaseException as error:  # noqa: BLE001 - raised again by whoever listens
            self._put(_End(error))
        else:
            self._put(_End())

    def _put(self, item: T | _End) -> bool:
        """Hand an item over; False if nobody listens any more."""
        while not self._stopped.is_set():
            try:
                self.waiting.put(item, timeout=_PATIENCE)
            except Full:
                continue
            return True
        return False
