"""The two manifests: the one inside the single file, and MANIFEST.json beside it.

Both are plain JSON with an integer ``format``; the outer one follows
``manifests/schema/manifest-1.json``. Nothing in them depends on the machine, the time or the user.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opencoti_build.errors import BugError
from opencoti_build.series.patch import Patch
from opencoti_build.sources.pins import Pin

FORMAT = 1


def base_facts(pin: Pin, tree: str) -> dict[str, object]:
    """What identifies the upstream tree."""
    return {"name": pin.name, "version": pin.version, "license": pin.license, "tree": tree}


def patch_facts(patches: Sequence[Patch]) -> list[dict[str, object]]:
    """Each patch with its digest and trailers, in order."""
    return [
        {
            "file": patch.path.name,
            "sha256": patch.sha256,
            "subject": patch.subject,
            "trailers": dict(patch.trailers),
        }
        for patch in patches
    ]


def render(manifest: Mapping[str, object]) -> bytes:
    """The bytes of a manifest: sorted, indented, ASCII, with a final newline."""
    return (json.dumps(manifest, indent=2, sort_keys=True) + "\n").encode("ascii")


def schema(project_root: Path) -> dict[str, Any]:
    """The JSON schema of the outer manifest."""
    path = project_root / "manifests" / "schema" / f"manifest-{FORMAT}.json"
    value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return value


def check(manifest: Mapping[str, object], project_root: Path) -> None:
    """Raise BugError when a manifest that we made does not follow its schema."""
    import jsonschema

    try:
        jsonschema.validate(manifest, schema(project_root))
    except jsonschema.ValidationError as error:
        where = "/".join(map(str, error.absolute_path))
        raise BugError(f"MANIFEST.json breaks its schema at {where}: {error.message}") from error
