"""A commit of a git repository, with its submodules resolved into one tree.

The ``git`` program fetches (proxies, certificates and keys work as the user knows them), pygit2
reads the objects. No configuration of the user or the system can change what is read.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from opencoti_build.errors import SourceError
from opencoti_build.sources.context import FetchContext
from opencoti_build.sources.http import public
from opencoti_build.sources.pins import GitTransport
from opencoti_build.sources.safety import check_link
from opencoti_build.sources.tree import FileMode, Files, ImportFile

if TYPE_CHECKING:
    import pygit2

_SUBMODULE = 0o160000
_FOLDER = 0o040000
_DEEPEST = 10
_ATTEMPTS = 3
_SCHEMES = "http:https:ssh:git"


def read_tree(transport: GitTransport, context: FetchContext) -> Files:
    """The files of the commit, submodules included, fetched into a temporary repository.

    Raises SourceError ``pin-not-locked``, ``offline-missing``, ``git-missing``, ``git-failed``
    or ``bad-submodule``.
    """
    if transport.commit is None:
        raise not_locked(transport)
    if context.offline:
        from opencoti_build.sources.download import offline_missing

        raise offline_missing([transport.label])
    context.cache.downloads.mkdir(parents=True, exist_ok=True)
    with context.locked(f"git-{transport.commit}", transport.label):
        prefix = f".git-{transport.commit}-"
        for stale in context.cache.downloads.glob(f"{prefix}*"):
            # The lock is ours, so its maker was killed.
            shutil.rmtree(stale, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=prefix, dir=context.cache.downloads) as folder:
            reader = _Reader(Path(folder), context, transport)
            yield from reader.files(transport.url, transport.commit, "", 0)


def not_locked(transport: GitTransport) -> SourceError:
    """The error for a pin that names a tag but no commit: a tag can be moved."""
    ref = transport.ref
    return SourceError(
        "pin-not-locked",
        f"the pin names {ref!r} of {transport.url} but no commit",
        hint=(
            f"run: git ls-remote {transport.url} 'refs/tags/{ref}^{{}}' refs/tags/{ref}; check the "
            'commit, then write it into the pin as commit = "…"'
        ),
        context={"url": transport.url, "ref": ref},
    )


@dataclass(frozen=True)
class _Reader:
    folder: Path
    context: FetchContext
    transport: GitTransport

    def files(self, url: str, commit: str, prefix: str, depth: int) -> Files:
        from opencoti_build.sources.libgit import pygit2

        if depth > _DEEPEST:
            raise _bad_submodule(prefix, f"nested more than {_DEEPEST} deep")
        path = self.folder / f"{len(list(self.folder.iterdir()))}.git"
        self.context.ui.info(f"git fetch {public(url)} {commit[:12]}")
        self._git("init", "-q", "--bare", "--template=", str(path))
        self._fetch(path, url, commit)
        repository = pygit2.Repository(str(path), pygit2.enums.RepositoryOpenFlag.NO_SEARCH)
        tree = repository[commit].peel(pygit2.Tree)
        urls: dict[str, str] = {}
        if self.transport.submodules and ".gitmodules" in tree:
            urls = self._submodule_urls(path, commit, url)
        yield from self._walk(repository, tree, "", prefix, urls, depth)
        shutil.rmtree(path)

    def _fetch(self, path: Path, url: str, commit: str) -> None:
        """Fetch one commit; a failure is tried again, as the network may be to blame."""
        slow = ("-c", "http.lowSpeedLimit=1000", "-c", "http.lowSpeedTime=60")
        attempts = min(_ATTEMPTS, self.context.retry.attempts)
        for failures in range(1, attempts + 1):
            try:
                where = ("-C", str(path), *slow)
                self._git(*where, "fetch", "-q", "--depth=1", "--no-tags", "--", url, commit)
                return
            except SourceError as error:
                if failures == attempts or error.reason != "git-failed":
                    raise
                wait = self.context.retry.wait(failures)
                self.context.ui.info(f"{error.context['why']}; trying again in {wait:.1f} s")
                time.sleep(wait)

    def _walk(
        self,
        repository: pygit2.Repository,
        tree: pygit2.Tree,
        path: str,
        prefix: str,
        urls: dict[str, str],
        depth: int,
    ) -> Files:
        for entry in tree:
            where = f"{path}{entry.name}"
            if entry.filemode == _FOLDER:
                below = repository[entry.id].peel(type(tree))
                yield from self._walk(repository, below, f"{where}/", prefix, urls, depth)
            elif entry.filemode == _SUBMODULE:
                if not self.transport.submodules:
                    continue
                if where not in urls:
                    raise _bad_submodule(prefix + where, "it has no URL in .gitmodules")
                yield from self.files(urls[where], str(entry.id), f"{prefix}{where}/", depth + 1)
            else:
                # Old repositories hold modes such as 100664; git itself reads them as 100644.
                mode = FileMode.EXECUTABLE if entry.filemode & 0o100 else FileMode.FILE
                data = repository[entry.id].read_raw()
                if entry.filemode == 0o120000:
                    mode = FileMode.LINK
                    check_link(prefix + where, data.decode("utf-8", "surrogateescape"))
                yield ImportFile(prefix + where, mode, data)

    def _submodule_urls(self, path: Path, commit: str, parent: str) -> dict[str, str]:
        """Path of each submodule -> its URL, relative ones resolved against ``parent``."""
        text = self._git(
            "-C", str(path), "config", "--blob", f"{commit}:.gitmodules", "-z", "--list"
        )
        tables: dict[str, dict[str, str]] = {}
        for row in filter(None, text.split("\0")):
            key, _, value = row.partition("\n")
            section, _, name = key.rpartition(".")
            tables.setdefault(section, {})[name] = value
        urls = {}
        for section, table in tables.items():
            if section.startswith("submodule.") and "path" in table and "url" in table:
                urls[table["path"]] = self._resolve(parent, table["url"], section)
        return urls

    def _resolve(self, parent: str, url: str, section: str) -> str:
        if url.startswith(("./", "../")):
            url = urljoin(parent.rstrip("/") + "/", url)
        scheme = urlsplit(url).scheme
        if scheme not in self._schemes().split(":"):
            raise _bad_submodule(section, f"its URL {url!r} is not of an allowed kind")
        return url

    def _schemes(self) -> str:
        # A repository on the network must not make us read local ones.
        return f"file:{_SCHEMES}" if self.transport.url.startswith("file:") else _SCHEMES

    def _git(self, *arguments: str) -> str:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
        for name in ("GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "GIT_SSH_COMMAND"):
            if name in os.environ:
                environment[name] = os.environ[name]
        environment |= {
            "GIT_CEILING_DIRECTORIES": str(self.folder),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "true",
            "SSH_ASKPASS": "true",
            "GIT_ALLOW_PROTOCOL": self._schemes(),
            "LC_ALL": "C",
        }
        environment.setdefault("GIT_SSH_COMMAND", "ssh -o BatchMode=yes")
        try:
            done = subprocess.run(
                ["git", *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
            )
        except FileNotFoundError as error:
            raise SourceError(
                "git-missing", "the program git is not installed", hint="install git"
            ) from error
        if done.returncode:
            lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
            raise SourceError(
                "git-failed",
                f"git could not fetch {public(self.transport.url)}",
                context={"url": public(self.transport.url), "why": lines[-1] if lines else "?"},
            )
        return done.stdout.decode("utf-8", "surrogateescape")


def _bad_submodule(where: str, why: str) -> SourceError:
    return SourceError(
        "bad-submodule", f"submodule {where}: {why}", context={"submodule": where, "why": why}
    )
