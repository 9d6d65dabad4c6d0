"""The launcher: forks leashes, backs them up, and sweeps what a dead one leaves behind.

Started by main as `python -I -S`, with the standard library and this package's light files only; single
threaded (PDEATHSIG fires when the forking *thread* ends), in a session of its own, deaf to TERM, INT and
HUP, a sub-reaper. It never waits for main, a leash or a job.

Rules of this file:
1. Its children are leashes, whose pids it knows, and strays: processes that a dead leash left. Strays are
   killed. When none is left (see `linux.children` for why that is exact), GONE is said of each dead leash:
   main takes nothing else as proof. A leash that exits with status 0 has itself seen ECHILD.
2. A leash that is not killing by its bound on the page is frozen: it is killed with all below it.
   A leash that is busy killing says so on the page and is left alone. A spare that main has given no run when its
   time is over, or when main is gone, goes by itself; one that does not is frozen, too.
3. When main is gone, every run has at most its grace left. The launcher stays until all leashes are gone.
4. It sleeps: one timer, armed for the earliest bound it knows, wakes it. Bounds only move later, so a wake-up
   may be too early, never too late: main says LOOK before it gives a run to a spare.
"""

import gc
import os
import select
import signal
import socket
import sys
from typing import Any

from orchestrator.runs import tree, wire
from orchestrator.runs.first_process import ignored_signals
from orchestrator.runs.killing import STUCK_AFTER_S
from orchestrator.runs.leash import Leash
from orchestrator.runs.linux import NEVER, BootTimer, become_subreaper, boot, children, name_process
from orchestrator.runs.page import Page
from orchestrator.runs.rehearsal import rehearse
from orchestrator.runs.wakeups import Wakeups, listen_to_children

_BUSY_S = 2.0
"""A leash that went through its kill loop so recently is alive (it does so at least once a second)."""
_SWEEP_PAUSES_MS = ((0.05, 0), (1.0, 5), (STUCK_AFTER_S, 100), (NEVER, 1000))


_SPARE_GOES_IN_S = 1.0
"""So long after its time a spare that is still there is taken for frozen."""


class Held:
    """A leash, as the launcher knows it."""

    __slots__ = ("serial", "slot", "until")

    def __init__(self, serial: int, slot: int, until: float = NEVER) -> None:
        """Note what it is for; `until`: a spare waits no longer for its run."""
        self.serial = serial
        self.slot = slot
        self.until = until


class Launcher:
    """The launcher's whole state."""

    __slots__ = (
        "_abandoned_at",
        "_armed_at",
        "_dead",
        "_held",
        "_ignored",
        "_page",
        "_poll",
        "_said_stuck",
        "_sock",
        "_sweeping_since",
        "_timer",
        "_unsent",
        "_wakeups",
    )

    def __init__(self, sock: socket.socket, page: Page) -> None:
        """Take the socket to main and the shared page."""
        self._sock = sock
        self._page = page
        self._held: dict[int, Held] = {}
        self._dead: list[int] = []
        self._unsent: list[tuple[object, ...]] = []
        self._abandoned_at = NEVER
        self._armed_at = NEVER
        self._sweeping_since = NEVER
        self._said_stuck: list[int] = []
        self._ignored = ignored_signals()
        self._timer = BootTimer()
        self._wakeups = Wakeups()
        self._poll = select.poll()
        for fd in (sock.fileno(), self._timer.fd, self._wakeups.fd):
            self._poll.register(fd, select.POLLIN)

    def run(self) -> None:
        """Serve until main is gone and no leash is left."""
        while self._abandoned_at == NEVER or self._held or self._sweeping_since != NEVER:
            ready = dict(self._poll.poll(self._pause_ms()))
            if self._wakeups.fd in ready or self._sweeping_since != NEVER:
                self._wakeups.clear()
                self._sweep()
            if self._timer.fd in ready:
                self._timer.clear()
                self._look()
            if self._sock.fileno() in ready:
                self._flush()
                self._read()

    def _read(self) -> None:
        try:
            received = wire.receive(self._sock)
        except BlockingIOError:
            return
        if received is None:
            self._poll.unregister(self._sock.fileno())
            self._abandoned_at = boot()
            self._look()
            return
        (name, *fields), fds = received
        if name in {wire.START, wire.SPARE}:
            self._start(Held(*fields), fds, spare=name == wire.SPARE)
        elif name == wire.LOOK:
            self._look()
        elif name == wire.PING:
            self._say(wire.PONG, *fields)

    def _start(self, held: Held, fds: list[int], *, spare: bool) -> None:
        try:
            what_fd, leash_fd = fds
            what: dict[str, Any] | int = what_fd
            if not spare:
                what = wire.from_memory(what_fd)  # here and not in the leash: what it does not touch costs it nothing
            pid = os.fork()
            if not pid:
                self._be_leash(held, what, leash_fd)
            self._held[pid] = held
            self._arm(self._bound(held))
        except ValueError:
            self._say(wire.REFUSED, held.serial, "the launcher has too many open files")  # they did not arrive
        except OSError as error:
            self._say(wire.REFUSED, held.serial, f"cannot start a leash: {error.strerror}")
        finally:
            for fd in fds:
                os.close(fd)

    def _be_leash(self, held: Held, what: dict[str, Any] | int, leash_fd: int) -> None:
        """Become the leash of a run, or a spare, in the forked process; never returns."""
        status = 1
        try:
            os.setsid()
            # Main must see the launcher's end, and another leash's, the moment it comes.
            self._sock.close()
            self._timer.close()
            self._wakeups.close()
            with socket.socket(fileno=leash_fd) as sock:
                sock.setblocking(False)
                orders_or_what = socket.socket(fileno=what) if isinstance(what, int) else what
                Leash(sock, self._page, (held.slot, held.serial), orders_or_what, self._ignored).hold()
            status = 0
        except BaseException:  # noqa: BLE001 - a bug of ours must end this process and no other; the tree is swept
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stderr.flush()
            os._exit(status)

    def _sweep(self) -> None:
        """Reap; kill what dead leashes left; say GONE of them once nothing is left."""
        for pid, status in tree.reap()[0]:
            held = self._held.pop(pid, None)
            if held is None:
                continue  # a stray
            if status == 0:
                self._say(wire.GONE, held.serial)
            else:
                self._dead.append(held.serial)
        if not self._dead:
            return
        if self._sweeping_since == NEVER:
            self._sweeping_since = boot()
        strays, refused = tree.kill_strays(set(self._held))
        if strays:
            self._complain(strays, refused)
            return
        for serial in self._dead:
            self._say(wire.GONE, serial)
        self._dead.clear()
        self._sweeping_since = NEVER
        self._said_stuck = []

    def _complain(self, strays: list[int], refused: list[int]) -> None:
        if boot() - self._sweeping_since >= STUCK_AFTER_S and strays != self._said_stuck:
            self._said_stuck = strays
            self._say(wire.STUCK, strays[:100], tree.why_alive(strays, refused))

    def _pause_ms(self) -> int | None:
        if self._sweeping_since == NEVER:
            return None
        age_s = boot() - self._sweeping_since
        return next(pause_ms for until_s, pause_ms in _SWEEP_PAUSES_MS if age_s < until_s)

    def _look(self) -> None:
        """Kill the leashes that are past their bound, and sleep until the next one may be."""
        now = boot()
        self._armed_at = NEVER
        earliest = NEVER
        for pid, held in self._held.items():
            bound = self._bound(held)
            if now >= bound:
                if now - self._page.acting_at(held.slot) >= _BUSY_S:
                    os.kill(pid, signal.SIGKILL)
                    tree.kill_below(pid)  # should the leash itself wait in the kernel (its log on a dead file system)
                bound = now + 1.0  # it is dead by then, or we look again
            earliest = min(earliest, bound)
        self._arm(earliest)

    def _bound(self, held: Held) -> float:
        """Return from when on a leash that is not killing, or a spare that still waits, is taken for frozen."""
        bound = self._page.bound(held.slot, held.serial, self._abandoned_at)
        return min(held.until, self._abandoned_at) + _SPARE_GOES_IN_S if bound is None else bound

    def _arm(self, at: float) -> None:
        if at < self._armed_at:
            self._armed_at = at
            self._timer.arm(at)

    def _say(self, *message: object) -> None:
        self._unsent.append(message)
        self._flush()

    def _flush(self) -> None:
        if self._abandoned_at != NEVER:
            self._unsent.clear()
            return
        try:
            while self._unsent and wire.send(self._sock, *self._unsent[0]):
                del self._unsent[0]
        except BlockingIOError:
            pass  # main is frozen: at most one message a leash waits here
        self._poll.modify(self._sock.fileno(), select.POLLIN | (select.POLLOUT if self._unsent else 0))


def main(sock_fd: int, page_fd: int) -> None:
    """Run the launcher on inherited descriptors: its socket to main, and the shared page."""
    name_process("orch-launcher")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    listen_to_children()
    become_subreaper()
    for fd in (sock_fd, page_fd):
        os.set_inheritable(fd, False)
    sock = socket.socket(fileno=sock_fd)
    sock.setblocking(False)
    rehearse(ignored_signals())
    name_process("orch-launcher")
    launcher = Launcher(sock, Page(page_fd))
    children(os.getpid())  # whatever is done for the first time is done before the first fork
    # A collection would touch every object and so copy every page that the leashes share.
    gc.disable()
    gc.freeze()
    launcher.run()
