"""Every change of a real artifact is found, with the release's manifest and without."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path

import pytest

from opencoti_build.ui import Ui
from opencoti_build.verify.single import verify_file
from tests.engine.conftest import Built

pytestmark = pytest.mark.engine

# A verification reads the whole file; raise the number for a long run.
COUNT = int(os.environ.get("OPENCOTI_TEST_MUTATIONS", "24"))
QUIET = Ui(quiet=True)


@pytest.fixture(scope="module")
def victim(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copy(built.file, tmp_path_factory.mktemp("mutate") / built.file.name))


@pytest.mark.parametrize("given", ["manifest", "no manifest"])
def test_single_byte_changes_are_found(built: Built, victim: Path, given: str) -> None:
    manifest = json.loads((built.release.folder / "MANIFEST.json").read_bytes())
    chance = random.Random(20260602)
    size = victim.stat().st_size
    missed = []
    with victim.open("r+b", buffering=0) as stream:
        for _ in range(COUNT):
            offset, change = chance.randrange(size), chance.randrange(1, 256)
            old = os.pread(stream.fileno(), 1, offset)[0]
            os.pwrite(stream.fileno(), bytes([old ^ change]), offset)
            report = verify_file(victim, manifest if given == "manifest" else None, QUIET)
            if all(finding.ok for finding in report.findings):
                missed.append((offset, change))
            os.pwrite(stream.fileno(), bytes([old]), offset)
    assert missed == []
    report = verify_file(victim, manifest, QUIET)
    assert all(finding.ok for finding in report.findings)


def test_truncations_and_appends_are_found(built: Built, victim: Path) -> None:
    size = victim.stat().st_size
    chance = random.Random(7)
    cuts = [1, 21, 22, 4096, *(chance.randrange(1, size) for _ in range(3))]
    for cut in cuts:
        os.truncate(victim, size - cut)
        assert not all(finding.ok for finding in verify_file(victim, None, QUIET).findings), cut
        shutil.copyfile(built.file, victim)
    for tail in (b"\0", b"x", b"PK\5\6" + bytes(18)):
        with victim.open("ab") as stream:
            stream.write(tail)
        assert not all(finding.ok for finding in verify_file(victim, None, QUIET).findings), tail
        shutil.copyfile(built.file, victim)
