"""One service that writes as fast as its manager takes it, into rotating files; and whether all of it arrived."""

import errno
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import processes, writer
from benchmarks.managers import LOG_BACKUPS, Manager, Service
from orchestrator.clock import boot

_LIMIT_S = 120.0
_POLL_S = 0.002
_SETTLE_S = 1.0
_BLOCK_BYTES = writer.LINE_BYTES * writer.LINES_A_BLOCK

Readings = dict[str, float]


def pump(manager: Manager, megabytes: int) -> Readings:
    """Let a service write so many megabytes (10^6 bytes) of numbered lines.

    Returns:
        megabytes_a_second: From the first byte written until the last stands in a file.
        cpu_s_a_gigabyte: Of the manager's processes meanwhile.
        wrong_lines: Lost, doubled or out of order.
        cut_lines: Spread over two files.
    """
    size = megabytes * 1_000_000
    go = manager.directory / "go"
    os.mkfifo(go)
    lines = str(size // writer.LINE_BYTES)
    service = Service("writer", (sys.executable, "-I", "-S", str(writer.__file__), lines, str(go)))
    manager.prepare([service])
    manager.start()
    gate = _wait_for_writer(go)
    time.sleep(_SETTLE_S)
    own = [pid for pid in processes.below(manager.pid) if not _is_writer(pid, go)]
    began, spent = boot(), processes.own_cpu_s(own)
    os.close(gate)
    _wait_for_bytes(manager.log_of(service), size)
    passed, spent = boot() - began, processes.own_cpu_s(own) - spent
    manager.tell_to_go()
    assert manager.process is not None  # noqa: S101 - started above
    manager.process.wait(_LIMIT_S)
    return {
        "megabytes_a_second": size / 1e6 / passed,
        "cpu_s_a_gigabyte": spent / (size / 1e9),
        **_faults(manager.log_of(service), size // writer.LINE_BYTES),
    }


def _wait_for_writer(go: Path) -> int:
    """Return the write end of the FIFO once the service waits at its other end; closing it lets it go."""
    end = boot() + _LIMIT_S
    while True:
        try:
            return os.open(go, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO or boot() > end:
                raise
        time.sleep(_POLL_S)


def _is_writer(pid: int, go: Path) -> bool:
    try:
        return str(go).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return True  # gone already: nobody of the manager's


def _wait_for_bytes(log: Path, size: int) -> None:
    end = boot() + _LIMIT_S
    while (found := sum(_size(file) for file in _files(log))) < size:
        if boot() > end:
            raise TimeoutError(f"{found} of {size} bytes are in the log files after {_LIMIT_S:g} s")
        time.sleep(_POLL_S)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0  # being renamed: seen at the next look


def _files(log: Path) -> list[Path]:
    """Return a log's files that may exist, the oldest first."""
    return [*(log.with_name(f"{log.name}.{number}") for number in range(LOG_BACKUPS, 0, -1)), log]


def _faults(log: Path, lines: int) -> Readings:
    files = [file for file in _files(log) if file.exists()]
    cut = sum(_last_byte(file) != b"\n" for file in files)
    wrong = 0
    expected = 0
    for data in _blocks(files):
        if data == writer.block(expected // writer.LINES_A_BLOCK):
            expected += writer.LINES_A_BLOCK
            continue
        for line in data.splitlines():
            number = line[:12]
            wrong += not (number.isdigit() and int(number) == expected and len(line) == writer.LINE_BYTES - 1)
            expected += 1
    return {"wrong_lines": float(wrong + abs(lines - expected)), "cut_lines": float(cut)}


def _blocks(files: list[Path]) -> Iterator[bytes]:
    """Yield what stands in all files together, block by block."""
    left = b""
    for file in files:
        with file.open("rb") as opened:
            while data := opened.read(_BLOCK_BYTES - len(left)):
                left += data
                if len(left) == _BLOCK_BYTES:
                    yield left
                    left = b""
    if left:
        yield left


def _last_byte(file: Path) -> bytes:
    with file.open("rb") as opened:
        opened.seek(max(0, file.stat().st_size - 1))
        return opened.read(1)
