from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lib.file_server import FileServer, serving


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    """A server that is also the package index; nothing else is asked."""
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with serving() as state:
        monkeypatch.setenv("PIP_INDEX_URL", state.index)
        yield state
