"""A TCP link that can be swallowed, cut and healed: what a network does to one node.

While it swallows, connections stay open and nothing comes through either way; what was sent meanwhile arrives
after the healing, as late as TCP would bring it. A cut link resets every connection, the new ones too.
"""

import contextlib
import selectors
import socket
import threading
from enum import StrEnum
from types import TracebackType
from typing import Self


class Link(StrEnum):
    """What becomes of what is sent."""

    OPEN = "open"
    SWALLOWING = "swallowing"
    CUT = "cut"
    CLOSED = "closed"


class Hole:
    """A proxy on 127.0.0.1 before one port, on a thread of its own."""

    def __init__(self, port: int) -> None:
        """Open the link."""
        self._port = port
        self._wanted = self._link = Link.OPEN
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._wakes, self._woken = socket.socketpair()
        self._peers: dict[socket.socket, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._settled = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"

    def __enter__(self) -> Self:
        """Return it: it has been open since it was made."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Close every connection, and the link."""
        self._become(Link.CLOSED)
        self._thread.join()
        for sock in (self._listener, self._wakes, self._woken):
            sock.close()
        self._selector.close()

    def swallow(self) -> None:
        """Be a black hole."""
        self._become(Link.SWALLOWING)

    def cut(self) -> None:
        """Reset what is open, and whatever is opened."""
        self._become(Link.CUT)

    def heal(self) -> None:
        """Let everything through, first what was swallowed."""
        self._become(Link.OPEN)

    def _become(self, link: Link) -> None:
        self._settled.clear()
        self._wanted = link
        self._wakes.send(b"!")
        self._settled.wait()

    def _serve(self) -> None:
        while self._link is not Link.CLOSED:
            for key, _ in self._selector.select():
                sock = key.fileobj
                assert isinstance(sock, socket.socket)
                if sock is self._woken:
                    self._change()
                elif sock is self._listener:
                    self._accept()
                elif sock in self._peers and self._link is Link.OPEN:  # else it went in this very round
                    self._forward(sock)

    def _change(self) -> None:
        self._woken.recv(64)
        self._link = self._wanted
        if self._link in (Link.CUT, Link.CLOSED):
            for sock in list(self._peers):
                self._drop(sock)
        for sock in self._peers:
            self._listen_to(sock)
        self._settled.set()

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        if self._link in (Link.CUT, Link.CLOSED):  # closed: it knocked in this very round
            client.close()
            return
        try:
            server = socket.create_connection(("127.0.0.1", self._port))
        except ConnectionRefusedError:
            client.close()
            return
        self._peers |= {client: server, server: client}
        for sock in (client, server):
            self._listen_to(sock)

    def _listen_to(self, sock: socket.socket) -> None:
        listening = sock in self._selector.get_map()
        if self._link is Link.OPEN and not listening:
            self._selector.register(sock, selectors.EVENT_READ)
        elif self._link is Link.SWALLOWING and listening:
            self._selector.unregister(sock)

    def _forward(self, sock: socket.socket) -> None:
        try:
            data = sock.recv(1 << 16)
            self._peers[sock].sendall(data)
        except OSError:
            data = b""
        if not data:
            self._drop(sock)

    def _drop(self, sock: socket.socket) -> None:
        peer = self._peers.pop(sock, None)
        if peer is not None:
            with contextlib.suppress(KeyError):  # a swallowed one is not listened to
                self._selector.unregister(sock)
            sock.close()
            self._drop(peer)
