"""Several runs of a table at once, each in a process of its own.

A run of a model that leaves a GPU idle at times shares it well with others; where the driver has its multi-process
service started, they compute at the same time.
"""

import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import connection, resource_tracker
from typing import Any, NamedTuple

from rankspace.errors import RankspaceError
from rankspace.experiments.jobs import Job, Request
from rankspace.training.interruption import Interruption, InterruptionError, TimeUpError
from rankspace.training.progress import Display, Lines, Quiet


class Orders(NamedTuple):
    """How runs are made. deadline: on the clock `time.time`, which processes share."""

    request: Request
    device: str
    deadline: float
    quiet: bool
    workers: int  # runs at a time


class Named(Lines):
    """Lines that begin with the name of a run."""

    def __init__(self, title: str) -> None:
        super().__init__()
        self._title = title

    def say(self, text: str) -> None:
        super().say(f"{self._title}: {text}")


def run_side_by_side(jobs: Sequence[Job], orders: Orders, ended: Callable[[], Any]) -> None:
    """Runs jobs, so many at a time, in their order; `ended` is called after each.

    After a signal, which is passed on, runs finish their steps and are saved. What a run raises is raised when those
    beside it are done; no other begins. Raises InterruptionError after a signal.
    """
    waiting, running = list(jobs), dict[Any, _Run]()
    failure: Exception | None = None
    told = begun = False
    with Interruption() as interruption:
        while running or waiting:
            if failure is not None or interruption.number or (begun and time.time() >= orders.deadline):
                waiting.clear()
            while waiting and len(running) < orders.workers:
                run = _Run.start(waiting.pop(0), orders)
                running[run.process.sentinel] = run
                begun = True
            if interruption.number and not told:
                for run in running.values():
                    run.signal(interruption.number)
                told = True
            for sentinel in connection.wait(list(running), timeout=0.2):
                outcome = running.pop(sentinel).outcome()
                failure = failure or outcome
                ended()
    if interruption.number:
        raise interruption.error("stopped")
    if failure is not None:
        raise failure


class _Run(NamedTuple):
    process: Any
    results: Any  # where it tells what it raised, or None

    @classmethod
    def start(cls, job: Job, orders: Orders) -> "_Run":
        spawn = multiprocessing.get_context("spawn")  # neither threads of torch nor a GPU survive a fork
        results, told = spawn.Pipe(duplex=False)
        process = spawn.Process(target=_run, args=(job, orders, told), name=job.title, daemon=True)
        with _without_ctrl_c():
            process.start()
        told.close()
        return cls(process, results)

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):  # it is done
            os.kill(self.process.pid, number)

    def outcome(self) -> Exception | None:
        """What the run raised, time being up aside; a process that was killed tells nothing."""
        self.process.join()
        try:
            found: Exception | None = self.results.recv()
        except EOFError:
            found = RankspaceError(
                f"experiment: {self.process.name} ended with exit code {self.process.exitcode}; "
                "run the same command again to go on."
            )
        return found


@contextmanager
def _without_ctrl_c() -> Iterator[None]:
    """SIGINT waits, also in a process that is started within, where Python would print what it was importing."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # starting it, as the first process does, would let SIGINT through
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_at_ctrl_c() -> None:
    """From here on SIGINT ends the process as SIGTERM does, at once and without a word, but where it trains."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


def _run(job: Job, orders: Orders, told: Any) -> None:
    """In a process of its own, and a group of its own: a terminal signals the one that passes signals on."""
    if hasattr(os, "setpgrp"):
        os.setpgrp()
    _end_at_ctrl_c()
    threading.Thread(target=_stop_without_parent, daemon=True).start()
    from rankspace.experiments.runner import Runner

    def display() -> Display:
        return Quiet() if orders.quiet else Named(job.title)

    def say(line: str) -> None:
        if not orders.quiet and line != job.title:
            print(line, file=sys.stderr, flush=True)

    try:
        runner = Runner(orders.request, orders.device, display, say, orders.workers)
        runner.run(job, (orders.deadline - time.time()) / 60)
    except (TimeUpError, InterruptionError):
        told.send(None)
    except RankspaceError as error:
        told.send(error)
    except Exception as error:
        traceback.print_exc()
        told.send(RuntimeError(f"{job.title}: {error}"))
    else:
        told.send(None)


def _stop_without_parent() -> None:
    """A run whose parent is gone, killed or with its terminal, would be written to by the next that goes on with it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)
