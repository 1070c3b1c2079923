"""A newer upstream: found, identified, shown, and never taken by itself."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from opencoti_build.errors import SourceError
from opencoti_build.sources.fetch import FetchContext
from opencoti_build.sources.pinfile import find_file, read_pin
from opencoti_build.sources.pins import GitTransport, Pin
from opencoti_build.sources.track import render_pin, track
from opencoti_build.sources.transports import pypi
from tests.lib.source_archives import TREE, tree_tar
from tests.lib.source_pins import TREE_ID, context, source
from tests.lib.source_pins import pypi as pypi_pin

COMMIT = "0123456789" * 4
OLD = tree_tar("pkg-1.0/vendor/x/")
NEW_FILES = {f"vendor/x/{name}": data for name, data in TREE.items()}
NEW = tree_tar(
    "pkg-1.10/",
    {**NEW_FILES, "vendor/x/new.c": b"new\n", ".git/modules/vendor/x/HEAD": COMMIT.encode()},
)


def listed(version: str, data: bytes, **more: object) -> SimpleNamespace:
    facts = {
        "version": version,
        "filename": f"pkg-{version}.tar.gz",
        "package_type": "sdist",
        "is_yanked": False,
        "digests": {"sha256": hashlib.sha256(data).hexdigest()},
        "size": len(data),
    }
    return SimpleNamespace(**{**facts, **more})


@pytest.fixture
def pin() -> Pin:
    git = GitTransport("https://example.invalid/x", "v1", "1" * 40, False)
    return source(pypi_pin("pkg", "pkg-1.0.tar.gz", OLD, "pkg-1.0/vendor/x"), git)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FetchContext:
    """A cache that holds the new archive, and an index that lists several."""
    made = context(tmp_path)
    blob = made.blob(hashlib.sha256(NEW).hexdigest(), "pkg-1.10.tar.gz")
    blob.parent.mkdir(parents=True)
    blob.write_bytes(NEW)
    files = [
        listed("1.10", NEW),
        listed("1.0", OLD),
        listed("1.9", b"x"),
        listed("1.11", b"x", is_yanked=True),
        listed("2.0rc1", b"x"),
        listed("3.0", b"x", package_type="wheel"),
        listed("4.0", b"x", digests={}),
        listed("oops", b"x"),
    ]
    monkeypatch.setattr(pypi, "list_files", lambda *_: files)
    return made


def test_the_newest_release(pin: Pin, place: FetchContext) -> None:
    tracked = track(pin, place)
    way, git = tracked.new.transports
    assert tracked.moved and tracked.commit == COMMIT
    assert (way.label, git.label) == ("PyPI pkg 1.10", f"git https://example.invalid/x {COMMIT}")
    assert tracked.new.version == COMMIT[:9] and tracked.new.tree != TREE_ID
    assert tracked.old == pin


def test_nothing_newer(pin: Pin, place: FetchContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pypi, "list_files", lambda *_: [listed("1.0", OLD), listed("0.9", b"x")])
    tracked = track(pin, place)
    assert not tracked.moved and tracked.new is pin


def test_written_pin_reads_back(pin: Pin, place: FetchContext, tmp_path: Path) -> None:
    new = replace(track(pin, place).new, name="next")
    path = tmp_path / "vendor/next.toml"
    path.parent.mkdir()
    path.write_text(render_pin(new, "Found\n\nsomewhere."))
    assert read_pin(path) == new
    assert find_file(path.parent, "next") == path


def reason(pin: Pin, place: FetchContext) -> str:
    with pytest.raises(SourceError) as caught:
        track(pin, place)
    return caught.value.reason


def test_refused(pin: Pin, place: FetchContext, monkeypatch: pytest.MonkeyPatch) -> None:
    assert reason(source(pin.transports[1]), place) == "not-tracked"
    assert reason(pin, replace(place, offline=True)) == "offline-missing"
    monkeypatch.setattr(pypi, "list_files", lambda *_: [])
    assert reason(pin, place) == "not-on-index"
    monkeypatch.setattr(pypi, "list_files", lambda *_: [listed("9", b"x", size=None)])
    assert reason(pin, place) == "index-no-size"
