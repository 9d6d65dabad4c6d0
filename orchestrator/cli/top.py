"""`top`: the status table, live. A client like every other: it can be slow, frozen or killed, and no node notices.

1. A task takes a picture each second; keys and a new window size are answered at once, from the last one.
2. Whatever ends it (q, ^C, SIGTERM, SIGHUP, an error), the terminal is given back first.
3. ^Z gives it back too, and `fg` takes it again.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import click
from rich.console import Console
from rich.live import Live

from orchestrator import clock
from orchestrator.cli import status, target
from orchestrator.cli.options import WHERE_HELP, Asked, cluster_options
from orchestrator.cli.picture import Camera, Picture
from orchestrator.cli.terminal import Keyboard
from orchestrator.errors import StoreUnreachableError
from orchestrator.view import phrases
from orchestrator.view import top as screen

PICTURE_PERIOD_S = 1.0
"""A frame of 40 rows costs 25 ms: at one a second a watcher takes 2 % of a core."""


@click.command("top", short_help="Watch every job live; q quits.", epilog=WHERE_HELP)
@cluster_options
def top(asked: Asked) -> int:
    """Watch every job live; q quits.

    The table of `status`, drawn anew each second, with all that is known of the selected job at the bottom.
    Up and down (or k, j) select, PgUp and PgDn scroll, Home and End (or g, G) jump, q or ^C quits. It only
    looks. Where Redis does not answer it goes on with what the node on this machine tells.
    Without a terminal it prints the table of `status` once.

    Exit status: 0, without a terminal that of `status`, 69 neither Redis nor a node on this machine answers.
    """
    found = target.find(asked, os.environ, Path.cwd())
    console = Console(markup=False, highlight=False, emoji=False)
    if not sys.stdin.isatty() or not console.is_terminal or console.is_dumb_terminal:
        return status.show_once(found)
    return asyncio.run(_watch(found, console))


async def _watch(found: target.Target, console: Console) -> int:
    async with Camera(found) as camera:
        top_of_jobs = _Top(await camera.take(), console)
        taking = asyncio.create_task(top_of_jobs.keep_taking(camera))
        try:
            with Keyboard(sys.stdin.fileno()) as keyboard:
                return await top_of_jobs.run(keyboard)
        finally:
            taking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await taking


class _Top:
    """What is on the screen, and what changes it."""

    def __init__(self, picture: Picture, console: Console) -> None:
        self._picture = picture
        self._taken_at = clock.boot()
        self._problem = ""
        self._console = console
        self._place = screen.Place()
        self._changed = asyncio.Event()
        self._suspend = False
        self._status: int | None = None

    async def keep_taking(self, camera: Camera) -> None:
        """Take picture after picture; one that fails leaves the last one on the screen, with a word about it."""
        while True:
            await asyncio.sleep(PICTURE_PERIOD_S)
            try:
                self._picture, self._problem = await camera.take(), ""
                self._taken_at = clock.boot()
            except StoreUnreachableError as error:
                self._problem = str(error)
            self._changed.set()

    async def run(self, keyboard: Keyboard) -> int:
        """Draw until somebody ends it; return the exit status."""
        with self._listening(keyboard), Live(console=self._console, screen=True, auto_refresh=False) as live:
            while self._status is None:
                if self._suspend:
                    self._sleep_in_background(keyboard, live)
                self._draw(live)
                await self._changed.wait()
                self._changed.clear()
        return self._status

    def _draw(self, live: Live) -> None:
        width, height = self._console.size
        view = self._picture.view
        self._place = screen.moved(self._place, None, rows=len(view.jobs), height=height)
        age_s = clock.boot() - self._taken_at
        note = f"{self._problem}; what is shown is {phrases.span(age_s)} old" if self._problem else ""
        frame = screen.frame(view, self._place, now_utc=clock.now().utc, width=width, height=height, note=note)
        live.update(frame, refresh=True)

    def _sleep_in_background(self, keyboard: Keyboard, live: Live) -> None:
        self._suspend = False
        live.stop()
        with keyboard.released():
            os.kill(os.getpid(), signal.SIGSTOP)
        live.start()

    @contextlib.contextmanager
    def _listening(self, keyboard: Keyboard) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        ends = {signal.SIGINT: 0, signal.SIGTERM: 128 + signal.SIGTERM, signal.SIGHUP: 128 + signal.SIGHUP}
        for number, exit_status in ends.items():
            loop.add_signal_handler(number, self._end, exit_status)
        loop.add_signal_handler(signal.SIGTSTP, self._on_suspend)
        loop.add_signal_handler(signal.SIGWINCH, self._changed.set)
        loop.add_reader(sys.stdin.fileno(), self._on_keys, keyboard)
        try:
            yield
        finally:
            loop.remove_reader(sys.stdin.fileno())
            for number in (*ends, signal.SIGTSTP, signal.SIGWINCH):
                loop.remove_signal_handler(number)

    def _end(self, exit_status: int) -> None:
        self._status = exit_status
        self._changed.set()

    def _on_suspend(self) -> None:
        self._suspend = True
        self._changed.set()

    def _on_keys(self, keyboard: Keyboard) -> None:
        keys = keyboard.read()
        if keys is None or "quit" in keys:
            self._end(0)
            return
        for key in keys:
            rows, height = len(self._picture.view.jobs), self._console.size.height
            self._place = screen.moved(self._place, cast(screen.Move, key), rows=rows, height=height)
        self._changed.set()
