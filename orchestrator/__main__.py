"""The command `orchestrator`, also as `python -m orchestrator`."""

import sys

_INTERRUPTED = 130


def main() -> int:
    """Run it; return its exit status. ^C may come before the first library is loaded."""
    try:
        from orchestrator.init import stand_in_as_init  # noqa: PLC0415 - as below

        stand_in_as_init()  # before anything is loaded: what stays as process 1 is small
        from orchestrator.cli import main as command  # noqa: PLC0415 - an import at the top cannot be guarded

        return command()
    except KeyboardInterrupt:
        return _INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
