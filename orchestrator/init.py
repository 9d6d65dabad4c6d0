"""Process 1 of a container, where nothing else is: it reaps orphans, hands signals on, and ends as the node ends.

The kernel gives every orphan of a pid namespace to its process 1, and expects it to be reaped there. A node must not
do that: main reaps by pid alone, and takes whatever becomes its child for what a run left behind. What
`docker exec` leaves would be killed by mistake, or stay a zombie for ever. So process 1 forks before anything
large is loaded: the child becomes the node, and what stays behind is this.

It knows one child and signals; it must never know what the child does.

Rules of this file:
1. All signals are blocked here and taken one by one with sigwait: no handler runs, none is lost, and the kernel
   does not drop them, as it does for a process 1 that has no handler.
2. What a terminal sends (^C, ^Z, a new size) goes to the whole foreground group, the node included: it is not
   handed on, or one ^C would be two orders to leave. The kernel is the sender then, as si_code says.
3. When the node ends, process 1 ends with its exit status, or 128 + the signal that ended it; the kernel kills
   whatever is left of the namespace.
"""

import os
import signal

_INIT = 1
_KILLED = 128
_SENT_BY_KERNEL = 0x80  # SI_KERNEL; what a process sends is SI_USER, SI_TKILL or SI_QUEUE

_OURS = {
    signal.SIGCHLD,
    # Faults of our own: blocked they would kill all the same, and they are never somebody's message to the node.
    *(signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV, signal.SIGSYS, signal.SIGTRAP),
}
_OF_THE_TERMINAL = {signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGWINCH}
"""Not SIGHUP: when a terminal goes, the kernel tells the leader of the session alone, and that is process 1."""


def stand_in_as_init() -> None:
    """Return at once where this is not process 1; else in a child, while this process stays behind and never returns.

    To be called before anything large is imported, while there is one thread.
    """
    if os.getpid() != _INIT:
        return
    forwarded = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP} - _OURS
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, as it may be inherited, children would reap themselves
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*forwarded, signal.SIGCHLD})
    node = os.fork()
    if not node:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    os._exit(_serve(node, {*forwarded, signal.SIGCHLD}))


def _serve(node: int, awaited: set[int]) -> int:
    """Reap and forward until the node has ended; return the status to exit with."""
    while True:
        told = signal.sigwaitinfo(awaited)
        if told.si_signo == signal.SIGCHLD:
            ended = _reap(node)
            if ended is not None:
                return ended
        elif not (told.si_code == _SENT_BY_KERNEL and told.si_signo in _OF_THE_TERMINAL):
            os.kill(node, told.si_signo)  # it cannot be gone: nobody else reaps it


def _reap(node: int) -> int | None:
    """Collect whatever has ended; return the exit status once the node has."""
    status = None
    while True:
        try:
            pid, wait_status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if pid == 0:
            return status
        if pid == node:
            code = os.waitstatus_to_exitcode(wait_status)
            status = code if code >= 0 else _KILLED - code
