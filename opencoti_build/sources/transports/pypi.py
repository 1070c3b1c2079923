"""A file of a Python package index, found by name through ``pypi_simple``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from opencoti_build.errors import SourceError
from opencoti_build.sources.context import FetchContext
from opencoti_build.sources.download import download, hash_mismatch
from opencoti_build.sources.http import make_session, reason
from opencoti_build.sources.pins import PypiTransport

if TYPE_CHECKING:
    import requests
    from pypi_simple import DistributionPackage

INDEX_ENV = "PIP_INDEX_URL"


def fetch(transport: PypiTransport, context: FetchContext) -> Path:
    """The checked archive in the cache.

    The index is ``$PIP_INDEX_URL``, else the library's default. Raises what ``download`` raises,
    and SourceError ``index-failed`` or ``not-on-index``.
    """

    def find(session: requests.Session) -> tuple[str, dict[str, str]]:
        return _find(transport, session, context.retry.timeout), {}

    return download(transport.archive, find, context)


def list_files(package: str, context: FetchContext) -> list[DistributionPackage]:
    """Every file that the index lists for ``package``.

    Raises SourceError ``index-failed`` or ``not-on-index``.
    """
    return _list(package, make_session(context.retry), context.retry.timeout)


def _list(package: str, session: requests.Session, timeout: float) -> list[DistributionPackage]:
    import requests
    from pypi_simple import NoSuchProjectError, PyPISimple

    endpoint = os.environ.get(INDEX_ENV)
    client = PyPISimple(endpoint, session=session) if endpoint else PyPISimple(session=session)
    try:
        return list(client.get_project_page(package, timeout=timeout).packages)
    except NoSuchProjectError as error:
        raise _missing(package, "the index does not know the package") from error
    except (requests.RequestException, ValueError) as error:
        raise SourceError(
            "index-failed",
            f"the package index gave no list of {package}: {reason(error)}",
            hint=f"check the network, proxy settings and {INDEX_ENV}",
            context={"package": package, "why": reason(error)},
        ) from error


def _find(transport: PypiTransport, session: requests.Session, timeout: float) -> str:
    filename = transport.archive.filename
    for package in _list(transport.package, session, timeout):
        if package.filename == filename:
            digest = package.digests.get("sha256", transport.archive.sha256)
            if digest != transport.archive.sha256:
                raise hash_mismatch(filename, transport.archive.sha256, digest)
            return str(package.url)
    what = f"{transport.package} {transport.version}"
    raise _missing(what, f"the index does not list {filename}", filename)


def _missing(what: str, why: str, filename: str | None = None) -> SourceError:
    context = {"package": what, **({"file": filename} if filename else {})}
    return SourceError(
        "not-on-index",
        f"{what}: {why}",
        hint=f"is {INDEX_ENV} set to an index that is not complete?",
        context=context,
    )
