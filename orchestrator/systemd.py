"""What systemd is told: readiness, the watchdog, one line of status (sd_notify(3)).

Twenty lines instead of a dependency: the protocol is one datagram to the socket in `$NOTIFY_SOCKET`.
"""

import contextlib
import os
import socket
from collections.abc import Mapping


class Notifier:
    """Speaks to the service manager, or to nobody where there is none."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        """Find the socket and how often the watchdog wants to be fed."""
        address = environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        for_us = environ.get("WATCHDOG_PID") in (None, str(os.getpid()))
        usec = environ.get("WATCHDOG_USEC", "") if for_us else ""
        self.watchdog_s = int(usec) / 1e6 if usec.isascii() and usec.isdigit() else None
        self._fed_at = float("-inf")

    def feed(self, now_boot: float) -> None:
        """Say that the heartbeat makes progress; at most four times per watchdog period."""
        if self.watchdog_s is not None and now_boot - self._fed_at >= self.watchdog_s / 4:
            self._fed_at = now_boot
            self.tell("WATCHDOG=1")

    def tell(self, *lines: str) -> bool:
        """Send assignments such as `READY=1`; False if nobody listens. Never blocks and never raises."""
        if not self._address:
            return False
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock,
        ):
            sock.setblocking(False)
            sock.sendto("\n".join(lines).encode(), self._address)
            return True
        return False
