"""The Lua scripts as they are sent: `lua/reading.lua` before each, and the SHA-1 that Redis knows it by.

Knows no server. What a script wants and answers stands in its own head.
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


def _load(name: str) -> Script:
    folder = resources.files("orchestrator.store") / "lua"
    text = "\n".join((folder / file).read_text(encoding="utf-8") for file in ("reading.lua", f"{name}.lua"))
    return Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


MEET = _load("meet")
LOOK = _load("look")
RENEW = _load("renew")
ACQUIRE = _load("acquire")
RELEASE = _load("release")
CLAIM = _load("claim")
RECORD = _load("record")
PUBLISH = _load("publish")
MEMBER = _load("member")
LEAVE = _load("leave")
RESTORE = _load("restore")
ORDER = _load("order")
READ = _load("read")

ALL = (MEET, LOOK, RENEW, ACQUIRE, RELEASE, CLAIM, RECORD, PUBLISH, MEMBER, LEAVE, RESTORE, ORDER, READ)
