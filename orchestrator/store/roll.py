"""A membership beat's reply before the texts that it still lacks are fetched."""

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.core.nouns import NodeName
from orchestrator.core.requests import KeepMembership


@dataclass(frozen=True, slots=True)
class Head:
    """One live member; a new `revision` means that it says something new of itself."""

    name: NodeName
    incarnation: str
    since_ms: int
    revision: str


@dataclass(frozen=True, slots=True)
class Roll:
    """Who lives, by one reply.

    Attributes:
        stale: Names of the members whose info must be fetched.
        intents_newer: The intents must be fetched.
    """

    request: KeepMembership
    heads: Sequence[Head]
    stale: Sequence[NodeName]
    intents_newer: bool
    version: int
    server_ms: int
