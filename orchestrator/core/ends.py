"""How a recorded run ended, in a clause for people and in a number for shells; light, since every command reads it."""

from collections.abc import Mapping


def exit_status_of(record: Mapping[str, object]) -> int:
    """Return what a shell would say of a run that failed: its exit code, 128 + its signal, else 1; never 0."""
    code, signal = record.get("exit_code"), record.get("signal")
    if isinstance(signal, int) and signal:
        return 128 + signal
    return code if isinstance(code, int) and code else 1


def describe_end(record: Mapping[str, object]) -> str:
    """Return the end of a run in one clause: `exit 1`, `signal 9`, `no such file: x`, `it never started: ...`."""
    error, signal, code = record.get("error"), record.get("signal"), record.get("exit_code")
    if error and record.get("outcome") not in ("ok", "stopped"):
        return str(error)
    if signal:
        return f"signal {signal}"
    if code:
        return f"exit {code}, expected" if record.get("outcome") == "ok" else f"exit {code}"
    return f"exit {code}" if code is not None else f"it never started: {error}" if error else "it never started"
