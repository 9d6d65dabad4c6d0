"""`pytest tests/stories --rewrite-stories` plays every story anew and writes down what came of it."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Say how stories are written anew."""
    parser.addoption("--rewrite-stories", action="store_true", help="write what comes of each story into its file")
