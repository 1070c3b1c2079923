"""The log of operations on the project's files, for undo and redo, safe against kills.

It lives in ``.opencoti/`` of the project (a folder that git ignores by itself). An entry holds the
files before and after; contents lie beside it by their sha256. Before a file is touched, the
journal says where it is going; a run that was killed on the way is completed by the next one.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path

from opencoti_build.digest import sha256_bytes
from opencoti_build.errors import SeriesError
from opencoti_build.paths import write_atomic

FORMAT = 1
FOLDER = ".opencoti"

_PENDING = "pending.json"
_POSITION = "position.json"

Images = Mapping[str, str | None]  # project path -> sha256, None: no such file


class Side(Enum):
    """One end of an operation."""

    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True)
class Entry:
    """One operation. ``space`` says how the workspace was before it (see ``bench``)."""

    number: int
    command: str
    before: Images
    after: Images
    space: Mapping[str, object] = field(default_factory=dict)

    def images(self, side: Side) -> Images:
        return self.before if side is Side.BEFORE else self.after


class Journal:
    """The journal of one project. Use it only inside ``hold``, but for looking."""

    def __init__(self, project: Path) -> None:
        self.project = project
        self.root = project / FOLDER

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Keep other commands on this project out while the block runs."""
        from filelock import FileLock

        self.root.mkdir(exist_ok=True)
        ignore = self.root / ".gitignore"
        if not ignore.is_file():
            write_atomic(ignore, b"*\n")
        with FileLock(self.root / "lock", is_singleton=True):
            yield

    def write(
        self,
        command: str,
        files: Mapping[str, bytes | None],
        space: Mapping[str, object] | None = None,
    ) -> Entry | None:
        """Write project files (None: remove) as one operation; None when nothing changes.

        Without ``files`` the operation changed the workspace alone, which ``space`` describes.
        What could be redone until now cannot be redone any more.
        """
        self.recover()
        old = {name: self._read(name) for name in files}
        changed = {name: data for name, data in files.items() if old[name] != data}
        if not changed and (files or not space):
            return None
        number = self.position + 1
        entry = Entry(
            number,
            command,
            {name: self._keep(old[name]) for name in changed},
            {name: self._keep(data) for name, data in changed.items()},
            space or {},
        )
        self._forget_from(number)
        write_atomic(self._path(number), json.dumps({"format": FORMAT, **asdict(entry)}).encode())
        self._turn(entry, Side.AFTER, number)
        return entry

    def undo(self, *, force: bool = False) -> Entry:
        """Go back over the last operation. Raises SeriesError ``undo-nothing``, ``undo-changed``.

        ``undo-changed``: files are not as the operation left them; ``force`` overwrites them.
        """
        self.recover()
        entry = self.entry(self.position)
        if entry is None:
            raise SeriesError("undo-nothing", "there is nothing to undo")
        self._check(entry, Side.AFTER, force)
        self._turn(entry, Side.BEFORE, entry.number - 1)
        return entry

    def redo(self, *, force: bool = False) -> Entry:
        """Do again what was undone last. Raises SeriesError ``redo-nothing``, ``undo-changed``."""
        self.recover()
        entry = self.entry(self.position + 1)
        if entry is None:
            raise SeriesError("redo-nothing", "there is nothing to redo")
        self._check(entry, Side.BEFORE, force)
        self._turn(entry, Side.AFTER, entry.number)
        return entry

    def recover(self) -> bool:
        """Complete an operation that was cut off; True when there was one."""
        pending = _load(self.root / _PENDING)
        if not pending:
            return False
        entry = self.entry(int(str(pending["entry"])))
        if entry is not None:
            self._turn(entry, Side(pending["side"]), int(str(pending["position"])))
        else:
            (self.root / _PENDING).unlink()
        return True

    @property
    def position(self) -> int:
        """The number of the last operation that is in force; 0 at the start."""
        return int(str(_load(self.root / _POSITION).get("position", 0)))

    def entry(self, number: int) -> Entry | None:
        """One operation, or None."""
        data = _load(self._path(number))
        if data.pop("format", None) != FORMAT:
            return None
        return Entry(**data)  # type: ignore[arg-type]

    def entries(self) -> list[Entry]:
        """Every operation that is known, also those that were undone, oldest first."""
        numbers = sorted(int(path.stem) for path in self.root.glob("log/*.json"))
        return [entry for number in numbers if (entry := self.entry(number))]

    def _turn(self, entry: Entry, side: Side, position: int) -> None:
        """Bring the files to one side of ``entry``; may be repeated any number of times."""
        going = {"entry": entry.number, "side": side.value, "position": position}
        write_atomic(self.root / _PENDING, json.dumps(going).encode())
        for name, image in entry.images(side).items():
            path = self.project / name
            if image is None:
                path.unlink(missing_ok=True)
            elif self._read(name) is None or sha256_bytes(path.read_bytes()) != image:
                write_atomic(path, (self.root / "objects" / image).read_bytes())
        write_atomic(self.root / _POSITION, json.dumps({"position": position}).encode())
        (self.root / _PENDING).unlink()

    def _check(self, entry: Entry, side: Side, force: bool) -> None:
        changed = [
            name
            for name, image in entry.images(side).items()
            if image != (None if (data := self._read(name)) is None else sha256_bytes(data))
        ]
        if changed and not force:
            raise SeriesError(
                "undo-changed",
                f"files changed since '{entry.command}'",
                hint="put them back, or use --force to lose those changes",
                context={"files": ", ".join(changed)},
            )

    def _keep(self, data: bytes | None) -> str | None:
        if data is None:
            return None
        digest = sha256_bytes(data)
        path = self.root / "objects" / digest
        if not path.is_file():
            write_atomic(path, data)
        return digest

    def _forget_from(self, number: int) -> None:
        # From the end, so that a kill never leaves an entry that does not follow on the others.
        for path in sorted(self.root.glob("log/*.json"), reverse=True):
            if int(path.stem) >= number:
                path.unlink()

    def _read(self, name: str) -> bytes | None:
        path = self.project / name
        return path.read_bytes() if path.is_file() else None

    def _path(self, number: int) -> Path:
        return self.root / "log" / f"{number:06d}.json"


def _load(path: Path) -> dict[str, object]:
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}
