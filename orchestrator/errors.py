"""Every error that reaches a user, with the exit status it ends a command with.

    OrchestratorError                1   it was tried and it failed
    ├── UsageError                   2   the command line cannot mean anything
    ├── DegradedError                3   it works, but a promise is weaker than it could be
    ├── NotFoundError                4   no such job or node
    ├── StoreUnreachableError       69   Redis did not answer (EX_UNAVAILABLE)
    ├── ConfigError                 78   the file is wrong (EX_CONFIG)
    └── InvariantError              70   our own bug (EX_SOFTWARE); never caught by us

Three kinds of trouble, three treatments: the user's mistake is raised as one of these and printed
as one clear line by `cli.main`; the world's trouble (a silent server, a dead child) travels as an
event and never as an exception; a broken invariant ends the process, and the leashes end its runs.
"""


class OrchestratorError(Exception):
    """It was tried and it failed; the message says what and how to cure it."""

    exit_status = 1


class UsageError(OrchestratorError):
    """The words of a command cannot mean anything."""

    exit_status = 2


class DegradedError(OrchestratorError):
    """The thing works, but a promise is weaker than it could be."""

    exit_status = 3


class NotFoundError(OrchestratorError):
    """No such job or node."""

    exit_status = 4


class StoreUnreachableError(OrchestratorError):
    """Redis did not answer within the limit."""

    exit_status = 69


class ConfigError(OrchestratorError):
    """The configuration is wrong; carries every complaint, each with its place.

    Attributes:
        complaints: One line each, `file:line:col: path: what and what to write instead`.
    """

    exit_status = 78

    def __init__(self, *complaints: str) -> None:
        """Gather the complaints; the message is one a line."""
        super().__init__("\n".join(complaints))
        self.complaints = complaints


class InvariantError(OrchestratorError):
    """Something that cannot be is: a bug of ours. The process must end."""

    exit_status = 70
