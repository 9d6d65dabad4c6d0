from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.runs.node import Node


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    """A node's process side, open; whatever is left of its runs at the end is abandoned, and so ended."""
    opened = Node(tmp_path)
    await opened.runs.open()
    yield opened
    await opened.runs.close()
