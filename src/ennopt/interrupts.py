"""Ctrl-C that is not lost.

Python raises `KeyboardInterrupt` wherever the program happens to be. If that is a
destructor, or a function that a solver's C code calls, the exception is printed and
forgotten, and the program goes on. Who must hear of it is told here as well.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Ears:
    """Tell `hear` of every signal whose handler raises `KeyboardInterrupt`.

    The handlers stay in charge: one that does not raise is not an interruption. Only
    the main thread can hear; elsewhere nothing happens.
    """

    def __init__(self, hear: Callable[[], None]) -> None:
        self.hear = hear
        self._before: dict[int, Callable[[int, FrameType | None], object]] = {}
        self._ours: dict[int, Callable[[int, FrameType | None], object]] = {}

    def open(self) -> None:
        """Begin to listen."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in SIGNALS:
            before = signal.getsignal(number)
            if callable(before):
                self._before[number] = before
                self._ours[number] = self._wrapped(before)
                signal.signal(number, self._ours[number])

    def close(self) -> None:
        """Put the handlers back, unless somebody has set another one since."""
        for number, ours in self._ours.items():
            if signal.getsignal(number) is ours:
                signal.signal(number, self._before[number])
        self._ours.clear()

    def _wrapped(
        self, before: Callable[[int, FrameType | None], object]
    ) -> Callable[[int, FrameType | None], object]:
        def handler(number: int, frame: FrameType | None) -> object:
            try:
                return before(number, frame)
            except KeyboardInterrupt:
                self.hear()
                raise

        return handler
