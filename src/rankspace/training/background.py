"""What is done beside training, in the order in which it was asked for."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any


class Background:
    """Does one thing after the other in a thread of its own.

    What one of them raises, the next call raises, and nothing that was asked for after it is done.
    """

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(1, name)
        self._asked: deque[Future[None]] = deque()
        self._failed = False

    def __call__(self, act: Callable[..., None], *given: Any, **named: Any) -> Future[None]:
        """Asks for something to be done. Raises what failed before."""
        while self._asked and self._asked[0].done():
            self._asked.popleft().result()
        asked = self._thread.submit(self._do, act, *given, **named)
        self._asked.append(asked)
        return asked

    def _do(self, act: Callable[..., None], *given: Any, **named: Any) -> None:
        if self._failed:
            return
        try:
            act(*given, **named)
        except BaseException:
            self._failed = True
            raise

    def wait(self) -> None:
        """Until all is done, or has failed."""
        wait(self._asked)

    def settle(self) -> None:
        """Waits until all is done. Raises what failed."""
        while self._asked:
            self._asked.popleft().result()

    def close(self) -> None:
        """Ends the thread when all is done; what failed is not told any more."""
        self._thread.shutdown()
