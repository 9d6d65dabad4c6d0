"""The shared page: until when each run may live, readable without a message and without a wake-up.

A memfd, mapped by main, by each launcher and by each leash (a replaced launcher maps the same one).
One slot a run or a spare leash, of eight doubles; each double has exactly one writer:

    cell        writer   meaning
    SERIAL      main     which run the slot belongs to; 0: nobody's
    TERM_AT     main     the stop signal to the tree, if nothing moved this by then
    KILL_AT     main     SIGKILL to the tree, until nothing is left
    KILL_BY     leash    it has begun to end the run and will kill by then, whatever main writes now
    ACTING_AT   leash    when it last went through its kill loop: a busy leash is no frozen leash
    BACKUP_S    main     so long after its bound a leash that is not killing is taken for frozen
    GRACE_S     main     the run's grace once main is gone
    BEGAN_AT    spare    when its first process became the job; 0: it did not, or the leash forked it and knows

Rules of this file:
1. An aligned double is read and written at once (`memoryview.cast("d")` copies eight bytes), so a single
   instant is never torn. Between two cells order may be lost: a reader may see the new KILL_AT with the
   old TERM_AT. It then steps down as if the renewal had come a moment later, which is always safe.
2. A new run's instants are written before its SERIAL, and SERIAL is cleared before a slot is given back.
   Serials never repeat, so a left-over leash that looks at its old slot finds a stranger there, which
   reads as "your time is over", and never a later run's time.
3. Instants only move later.

It knows nothing of processes or sockets.
"""

import mmap
import os

from orchestrator.runs.linux import NEVER

SLOTS = 4096
"""Runs a node can have at a time. 256 KiB, of which only what was touched takes memory."""

_CELLS = 8
_BYTES = SLOTS * _CELLS * 8
_SERIAL, _TERM_AT, _KILL_AT, _KILL_BY, _ACTING_AT, _BACKUP_S, _GRACE_S, _BEGAN_AT = range(8)
_OVER = float("-inf")


class Page:
    """The mapped page."""

    __slots__ = ("_cells", "_map", "fd")

    def __init__(self, fd: int) -> None:
        """Map the page behind a descriptor."""
        self.fd = fd
        self._map = mmap.mmap(fd, _BYTES)
        self._cells = memoryview(self._map).cast("d")

    @classmethod
    def create(cls) -> "Page":
        """Make a new, empty page."""
        fd = os.memfd_create("orchestrator-deadlines")
        os.ftruncate(fd, _BYTES)
        return cls(fd)

    def close(self) -> None:
        """Unmap it."""
        self._cells.release()
        self._map.close()
        os.close(self.fd)

    # Main's cells.

    def claim(
        self, slot: int, serial: int, term_at: float, kill_at: float, *, backup_s: float = 0.0, grace_s: float = 0.0
    ) -> None:
        """Give a slot to a run."""
        start = slot * _CELLS
        self._cells[start + _BEGAN_AT] = 0.0
        self._cells[start + _BACKUP_S] = backup_s
        self._cells[start + _GRACE_S] = grace_s
        self._cells[start + _KILL_AT] = kill_at
        self._cells[start + _TERM_AT] = term_at
        self._cells[start + _KILL_BY] = NEVER
        self._cells[start + _ACTING_AT] = _OVER
        self._cells[start + _SERIAL] = serial

    def extend(self, slot: int, term_at: float, kill_at: float) -> None:
        """Move a run's instants; what would move earlier stays."""
        start = slot * _CELLS
        # KILL_AT first: whoever sees the new TERM_AT then acts on nothing older.
        self._cells[start + _KILL_AT] = max(kill_at, self._cells[start + _KILL_AT])
        self._cells[start + _TERM_AT] = max(term_at, self._cells[start + _TERM_AT])

    def clear(self, slot: int) -> None:
        """Take a slot away from its run."""
        self._cells[slot * _CELLS + _SERIAL] = 0

    # The leash's cells.

    def commit(self, slot: int, serial: int, kill_by: float) -> None:
        """Say that the leash kills by then, whatever is extended from now on."""
        start = slot * _CELLS
        if self._cells[start + _SERIAL] == serial:
            self._cells[start + _KILL_BY] = kill_by

    def acting(self, slot: int, serial: int, now: float) -> None:
        """Say that the leash is killing right now."""
        start = slot * _CELLS
        if self._cells[start + _SERIAL] == serial:
            self._cells[start + _ACTING_AT] = now

    def begin(self, slot: int, serial: int, now: float) -> None:
        """Say that a spare's first process becomes the job right now."""
        start = slot * _CELLS
        if self._cells[start + _SERIAL] == serial:
            self._cells[start + _BEGAN_AT] = now

    # What the leash and the launcher read.

    def began_at(self, slot: int, serial: int) -> float:
        """Return when a spare's first process became the job, 0 if it did not."""
        start = slot * _CELLS
        return self._cells[start + _BEGAN_AT] if self._cells[start + _SERIAL] == serial else 0.0

    def term_at(self, slot: int, serial: int) -> float:
        """Return when the tree is to be asked to end; long past if the slot is not this run's."""
        start = slot * _CELLS
        return self._cells[start + _TERM_AT] if self._cells[start + _SERIAL] == serial else _OVER

    def kill_at(self, slot: int, serial: int) -> float:
        """Return when the tree is to be killed; long past if the slot is not this run's."""
        start = slot * _CELLS
        return self._cells[start + _KILL_AT] if self._cells[start + _SERIAL] == serial else _OVER

    def bound(self, slot: int, serial: int, abandoned_at: float = NEVER) -> float | None:
        """Return from when on a leash that is not killing is taken for frozen.

        That is a while after KILL_AT, or KILL_BY if that is earlier, or after the grace since main was gone.

        Args:
            slot: Of the run.
            serial: Of the run.
            abandoned_at: When main was gone.

        Returns:
            None if the slot is not this run's: not yet (a spare), or not any more: main gave it back, so it has proof
            of the run's end.
        """
        start = slot * _CELLS
        if self._cells[start + _SERIAL] != serial:
            return None
        ends = (
            self._cells[start + _KILL_AT],
            self._cells[start + _KILL_BY],
            abandoned_at + self._cells[start + _GRACE_S],
        )
        return min(ends) + self._cells[start + _BACKUP_S]

    def acting_at(self, slot: int) -> float:
        """Return when the slot's leash last went through its kill loop."""
        return self._cells[slot * _CELLS + _ACTING_AT]


class Slots:
    """Which slots are free; main's side only. The one freed longest ago is used first."""

    __slots__ = ("_free", "_serial")

    def __init__(self) -> None:
        """Begin with all of them."""
        self._free = list(range(SLOTS))
        self._serial = 0

    def take(self) -> tuple[int, int] | None:
        """Return a free slot and a fresh serial, or None if all are in use."""
        if not self._free:
            return None
        self._serial += 1
        return self._free.pop(0), self._serial

    def give_back(self, slot: int) -> None:
        """Make a slot free again."""
        self._free.append(slot)
