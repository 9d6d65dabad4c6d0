"""How many files main and the launcher may have open: two descriptors a run.

It knows one limit of this process, which it raises; it must never know who needs it. Jobs get what was before.
"""

import resource

MOST = 65536
"""Up to where the soft limit is raised; the launcher inherits it."""


def raise_limit() -> int:
    """Raise this process's soft limit of open files; return what it was."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return soft
