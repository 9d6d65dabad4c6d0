"""The Lua scripts as they are sent: `lua/reading.lua` before each, `lua/history.lua` before those that write it.

Each with the SHA-1 that Redis knows it by. Knows no server. What a script wants and answers stands in its own head.
"""

import hashlib
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True, slots=True)
class Script:
    """One script.

    Attributes:
        sha: What EVALSHA calls it by.
    """

    name: str
    text: str
    sha: str


def _load(name: str, *before: str) -> Script:
    folder = resources.files("orchestrator.store") / "lua"
    text = "\n".join((folder / f"{part}.lua").read_text(encoding="utf-8") for part in ("reading", *before, name))
    return Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


MEET = _load("meet")
LOOK = _load("look")
RENEW = _load("renew")
ACQUIRE = _load("acquire")
RELEASE = _load("release")
CLAIM = _load("claim")
SETTLE = _load("settle", "history")
RECORD = _load("record", "history")
SUCCESSES = _load("successes")
PAST = _load("past")
PUBLISH = _load("publish")
MEMBER = _load("member")
LEAVE = _load("leave")
RESTORE = _load("restore")
ORDER = _load("order")
TRIGGER = _load("trigger")
FORGET = _load("forget")
READ = _load("read")
