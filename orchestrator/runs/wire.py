"""The messages between main, the launcher and the leashes.

SEQPACKET unix sockets: messages keep their bounds, the end of either side is seen at once. A message is
a JSON array, its first element one of the names below; descriptors ride along (SCM_RIGHTS).

    main -> launcher    START serial slot                     + [what to run (a memfd), the leash's socket]
                        SPARE serial slot until               + [its first process's socket, the leash's]; a leash
                                                              that waits for a run
                        LOOK                                  spares are given runs just now: their bounds are new
                        PING n
    launcher -> main    PONG n
                        REFUSED serial why                    no leash was forked
                        GONE serial                           that leash is dead, and no stray is left here
                        STUCK pids why                        strays that do not die
    main -> leash       RUN what                              to a spare: what to run, once; to its waiting first
                                                              process, on a socket of its own, the same
                        STOP grace_s failure                  again with less: shorter
                        KILL
                        CHECK n argv timeout_s                is the job healthy, in the words of a command?
                        RELOAD signum argv                    to the first process; 0 and a command, or null
    leash -> main       LEASHED pid ready_pid                 + [its own pidfd, its alarm]; a spare has a first
                                                              process that waits for its command, else 0
                        STARTED pid                           exec succeeded
                        KILLING                               it is in its kill loop
                        STUCK pids why
                        LOG_FAILED why, LOG_RESTORED dropped_bytes
                        CHECKED n healthy why                 not said of a check that the run's end cut short
                        HOOK_FAILED name why
                        LAST_HOOK name limit_s                the job is over; this hook is all that runs yet
                        ENDED exit_code signal error cause elapsed_s tail     ECHILD

What to run travels in a memfd because an environment may be larger than any datagram; one that is not can be
handed to a spare.
This file knows names and sockets; it must never know what is done about a message.
"""

import array
import json
import os
import socket
from typing import Any

START, SPARE, LOOK, PING = "start", "spare", "look", "ping"
PONG, REFUSED, GONE = "pong", "refused", "gone"
RUN, STOP, KILL, CHECK, RELOAD = "run", "stop", "kill", "check", "reload"
LEASHED, STARTED, KILLING, ENDED = "leashed", "started", "killing", "ended"
STUCK, LOG_FAILED, LOG_RESTORED = "stuck", "log_failed", "log_restored"
CHECKED, HOOK_FAILED, LAST_HOOK = "checked", "hook_failed", "last_hook"

MAX_MESSAGE_BYTES = 65536
"""Of one message; a longer one is not sent. The longest of ours is ENDED with its tail: 4 KiB, at most six times
that in JSON. What people write into a CHECK or a RELOAD may be longer."""

MAX_CLAUSE = 1000
"""Characters of a reason: a program's name in it may be as long as people like."""

_ROOM_FOR_FDS = socket.CMSG_SPACE(2 * array.array("i").itemsize)

Message = list[Any]

_encode = json.JSONEncoder(separators=(",", ":")).encode


def pair() -> tuple[socket.socket, socket.socket]:
    """Return two connected ends, both closed on exec, neither of which ever blocks."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in ends:
        end.setblocking(False)
    return ends


def send(sock: socket.socket, *message: object, fds: tuple[int, ...] = ()) -> bool:
    """Send a message; False if the other side is gone.

    Raises:
        BlockingIOError: The other side does not read; nothing was sent.
        ValueError: It is longer than MAX_MESSAGE_BYTES; nothing was sent.
    """
    data = _encode(message).encode()
    if len(data) > MAX_MESSAGE_BYTES:
        raise ValueError(f"{len(data)} bytes do not fit into a message of {MAX_MESSAGE_BYTES}")
    try:
        if fds:
            socket.send_fds(sock, [data], list(fds))
        else:
            sock.send(data)
    except (BrokenPipeError, ConnectionResetError):
        return False
    except OSError as error:
        raise BlockingIOError(error.errno, error.strerror) from error  # ENOBUFS, ETOOMANYREFS: later
    return True


def receive(sock: socket.socket) -> tuple[Message, list[int]] | None:
    """Return the next message with its descriptors; None at the end of the other side.

    Raises:
        BlockingIOError: Nothing there yet.
    """
    # socket.recv_fds ignores its flags (seen in 3.11). Without MSG_CMSG_CLOEXEC a job would inherit its leash's
    # socket, and main would not see the leash die.
    try:
        data, control, _, _ = sock.recvmsg(MAX_MESSAGE_BYTES, _ROOM_FOR_FDS, socket.MSG_CMSG_CLOEXEC)
    except ConnectionResetError:
        return None
    if not data:
        return None
    fds = array.array("i")
    for level, kind, block in control:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(block[: len(block) - len(block) % fds.itemsize])
    return json.loads(data), fds.tolist()


def is_something_there(sock: socket.socket) -> bool:
    """Tell whether a message can be received."""
    try:
        return bool(sock.recv(1, socket.MSG_PEEK))
    except (BlockingIOError, ConnectionResetError):
        return False


def receive_bytes(sock: socket.socket) -> bytes:
    """Return the next message as it came, without any descriptors; empty where there is none."""
    try:
        return sock.recv(MAX_MESSAGE_BYTES)
    except (BlockingIOError, ConnectionResetError):
        return b""


def packed(*message: object) -> bytes | None:
    """Return a message ready to be sent as it is; None if it is longer than MAX_MESSAGE_BYTES."""
    data = _encode(message).encode()
    return data if len(data) <= MAX_MESSAGE_BYTES else None


def in_memory(what: object) -> int:
    """Return a memfd that holds `what` as JSON."""
    fd = os.memfd_create("orchestrator-run")
    data = memoryview(json.dumps(what).encode())
    while data:
        data = data[os.write(fd, data) :]
    return fd


def from_memory(fd: int) -> dict[str, Any]:
    """Read what `in_memory` wrote."""
    found: dict[str, Any] = json.loads(os.pread(fd, os.fstat(fd).st_size, 0))
    return found
