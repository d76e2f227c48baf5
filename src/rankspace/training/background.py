"""What is done beside training, in the order in which it was asked for."""

from collections.abc import Callable
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any

Task = Callable[[], None]


class Background:
    """Does one thing after the other in a thread of its own, and keeps nothing of what is done.

    What one of them raises, all later calls raise, and nothing that was asked for after it is done.
    """

    def __init__(self, name: str) -> None:
        self._asked: SimpleQueue[tuple[Task, Event] | None] = SimpleQueue()
        self._thread = Thread(target=self._work, name=name)
        self._is_begun = False
        self._last = Event()  # set when what was asked for last is done, or left out
        self._last.set()
        self._failure: BaseException | None = None
        self._is_given_up = False
        self._in_the_end: Task

    def __call__(self, act: Callable[..., None], *given: Any) -> Event:
        """Asks for something; the event is set when it is done, or left out. Raises what failed before."""
        self.check()
        if not self._is_begun:
            self._is_begun = True
            self._thread.start()
        last = Event()
        self._asked.put((lambda: act(*given), last))
        self._last = last
        return last

    def check(self) -> None:
        """Raises what failed, without waiting."""
        if self._failure is not None:
            raise self._failure

    def wait(self) -> None:
        """Until all is done, or left out."""
        self._last.wait()

    def settle(self) -> None:
        """Waits until all is done. Raises what failed."""
        self.wait()
        self.check()

    def give_up(self) -> None:
        """Leaves out what is not begun."""
        self._is_given_up = True

    def close(self, in_the_end: Task) -> None:
        """Waits until all is done, or left out, and ends with one thing more, whatever failed. If the waiting is
        interrupted, that is done all the same when it is time."""
        if not self._is_begun:
            in_the_end()
            return
        self._in_the_end = in_the_end
        self._asked.put(None)
        self._thread.join()

    def _work(self) -> None:
        while self._do(self._asked.get()):
            pass
        self._in_the_end()

    def _do(self, asked: tuple[Task, Event] | None) -> bool:
        """One thing that was asked for, unless it is left out; False for the end."""
        if asked is None:
            return False
        task, is_over = asked
        del asked
        try:
            if self._failure is None and not self._is_given_up:
                task()
        except BaseException as failure:
            self._failure = failure
        del task  # before anyone is told that there is room
        is_over.set()
        return True
