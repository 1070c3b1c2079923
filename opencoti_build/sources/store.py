"""The object store: one bare git repository in the cache that holds every imported tree."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from opencoti_build.errors import SourceError
from opencoti_build.sources.packfile import PackWriter
from opencoti_build.sources.safety import check_name
from opencoti_build.sources.tree import ImportFile, TreeBuilder

if TYPE_CHECKING:
    import pygit2


# One reference for each imported tree: quick to look up, and git's clean-up spares what it names.
_TREES = "refs/trees"


class ObjectStore:
    """Trees by their git id. The repository is made on demand; many processes may use it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def has_tree(self, tree: str) -> bool:
        """Is ``tree`` (40 hex digits) here? Imports are atomic, so it is then here whole."""
        if (self.path / _TREES / tree).is_file():
            return True  # without the 0.1 s that loading pygit2 takes
        if not (self.path / "HEAD").is_file():
            return False
        from opencoti_build.sources.libgit import pygit2

        repository = self._open()
        if pygit2.Oid(hex=tree) not in repository:
            return False
        return isinstance(repository[tree], pygit2.Tree)

    def import_files(self, files: Iterable[ImportFile], *, expected: str | None = None) -> str:
        """Store ``files`` and return their tree id.

        Content is stored as it is. Names ``.git`` are skipped, empty folders do not exist.
        Raises SourceError ``unsafe-archive`` for a bad or double name, ``tree-empty`` when
        nothing is left, and ``tree-mismatch`` (then nothing is stored) unless ``expected``.
        """
        self._create()
        trees = TreeBuilder()
        with PackWriter(self.path / "objects" / "pack") as pack:
            count = 0
            for file in files:
                parts = check_name(file.path)
                if ".git" in parts:
                    continue
                trees.add("/".join(parts), file.mode, pack.put("blob", file.data))
                count += 1
            if not count:
                raise SourceError("tree-empty", "the source holds no files")
            tree = trees.write(pack.put).hex()
            if expected is not None and tree != expected:
                raise SourceError(
                    "tree-mismatch",
                    "the unpacked files are not the ones that the pin names",
                    hint="the transport changed; check the pin before you change its tree id",
                    context={"expected": expected, "actual": tree, "files": count},
                )
            pack.publish()
        self._name(f"{_TREES}/{tree}", tree)
        return tree

    def remembered(self, key: str) -> str | None:
        """The tree id that ``remember`` stored under ``key``, when it is still here."""
        if not (self.path / "HEAD").is_file():
            return None
        reference = self._open().references.get(f"refs/pins/{key}")
        if reference is None:
            return None
        tree = str(reference.target)
        return tree if self.has_tree(tree) else None

    def remember(self, key: str, tree: str) -> None:
        """Note ``tree`` under ``key``: for pins that lock their transport but name no tree."""
        self._name(f"refs/pins/{key}", tree)

    def _name(self, reference: str, tree: str) -> None:
        from opencoti_build.sources.libgit import pygit2

        self._open().references.create(reference, pygit2.Oid(hex=tree), force=True)

    def _open(self) -> pygit2.Repository:
        from opencoti_build.sources.libgit import pygit2

        # A cache may be a volume of another user (containers). The check protects from hooks and
        # commands in a foreign repository's configuration; libgit2 runs neither.
        pygit2.settings.owner_validation = False
        return pygit2.Repository(str(self.path), pygit2.enums.RepositoryOpenFlag.NO_SEARCH)

    def _create(self) -> None:
        if (self.path / "HEAD").is_file():
            return
        from opencoti_build.sources.libgit import pygit2

        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=f".{self.path.name}.", dir=self.path.parent))
        try:
            repository = pygit2.init_repository(str(fresh), bare=True)
            repository.config["gc.auto"] = 0
            repository.free()
            fresh.chmod(0o755)
            fresh.rename(self.path)
        except OSError:
            # Another process was first: a rename never replaces a folder with files in it.
            if not (self.path / "HEAD").is_file():
                raise
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
