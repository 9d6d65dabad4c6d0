"""The only reader of clocks; everything else is told the time."""

import time

from orchestrator.core.nouns import Moment

_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Goes on while the machine is suspended; on systems without it the monotonic clock must do."""


def now() -> Moment:
    """Read both clocks together."""
    return Moment(boot=time.clock_gettime(_BOOT_CLOCK), utc=time.time())  # noqa: TID251 - this is the place


def boot() -> float:
    """Read the boot clock alone, in seconds."""
    return time.clock_gettime(_BOOT_CLOCK)
