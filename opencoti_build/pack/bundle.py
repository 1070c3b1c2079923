"""Single files with a model and default arguments inside.

``.args`` holds one argument a line; a line ``...`` stands for the user's own arguments. A file
without that line would be ignored as soon as the user gives an argument.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from opencoti_build.digest import sha256_file
from opencoti_build.errors import PackError
from opencoti_build.pack.append import Addition, append_entries, layout_of
from opencoti_build.pack.host import ARGS_NAME, MODEL_SUFFIX, PackedEntry, packed_entries
from opencoti_build.ui import Ui, Unit

MODEL_MAGIC = b"GGUF"
USER_ARGUMENTS = "..."


@dataclass(frozen=True)
class Bundle:
    """A file with a model: its size in bytes, its sha256 (hex) if asked for, the new entries."""

    path: Path
    size: int
    sha256: str | None
    entries: tuple[PackedEntry, ...]


def args_text(words: str) -> str:
    """The text of ``.args`` for arguments in shell syntax, with the user's own at the end.

    An argument ``...`` says where the user's go instead. Raises PackError ``pack-bad-args`` for
    arguments that a line cannot hold.
    """
    try:
        items = shlex.split(words)
    except ValueError as error:
        raise PackError("pack-bad-args", f"the arguments are not shell words: {error}") from None
    for item in items:
        if not item.strip(" \t") or any(char in item for char in "\r\n\0"):
            raise PackError(
                "pack-bad-args", f"{item!r} cannot be an argument in {ARGS_NAME}: one a line"
            )
    if items.count(USER_ARGUMENTS) > 1:
        raise PackError("pack-bad-args", f"{USER_ARGUMENTS} stands for the user's arguments, once")
    if USER_ARGUMENTS not in items:
        items.append(USER_ARGUMENTS)
    return "\n".join(items) + "\n"


def add_model(
    host: Path,
    model: Path,
    out: Path,
    args: str | None = None,
    *,
    want_sha256: bool = False,
    ui: Ui | None = None,
) -> Bundle:
    """Copy the single file ``host`` to ``out`` with ``model`` and default arguments inside.

    ``args`` is the text of ``.args``. The data is read and copied once; ``want_sha256`` reads the
    finished file again. Raises PackError ``pack-bad-model``, ``pack-has-model``, those of
    ``append_entries``, or a ``zip-…`` reason of the host.
    """
    _check_model(model)
    held = [entry.name for entry in layout_of(host).entries]
    held = [name for name in held if name.lower().endswith(MODEL_SUFFIX) or name == ARGS_NAME]
    if held:
        raise PackError("pack-has-model", f"{host.name} already holds {', '.join(held)}")
    additions = [Addition(model.name, model)]
    if args is not None:
        additions.append(Addition(ARGS_NAME, args.encode("utf-8")))
    total = host.stat().st_size + model.stat().st_size
    with (ui or Ui(quiet=True)).task(f"bundle {out.name}", total, Unit.BYTES) as task:
        size, written = append_entries(host, out, additions, digests=False, progress=task.advance)
    return Bundle(out, size, sha256_file(out) if want_sha256 else None, packed_entries(written))


def _check_model(model: Path) -> None:
    with model.open("rb") as stream:
        magic = stream.read(len(MODEL_MAGIC))
    if not model.name.lower().endswith(MODEL_SUFFIX) or magic != MODEL_MAGIC:
        raise PackError(
            "pack-bad-model",
            f"{model.name} is not a GGUF model: its name must end in {MODEL_SUFFIX} and its data "
            f"begin with {MODEL_MAGIC.decode()}",
        )
