"""A file of a Python package index, found by name through ``pypi_simple``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from opencoti_build.errors import SourceError
from opencoti_build.sources.context import FetchContext
from opencoti_build.sources.download import download, hash_mismatch
from opencoti_build.sources.http import reason
from opencoti_build.sources.pins import PypiTransport

if TYPE_CHECKING:
    import requests

INDEX_ENV = "PIP_INDEX_URL"


def fetch(transport: PypiTransport, context: FetchContext) -> Path:
    """The checked archive in the cache.

    The index is ``$PIP_INDEX_URL``, else the library's default. Raises what ``download`` raises,
    and SourceError ``index-failed`` or ``not-on-index``.
    """

    def find(session: requests.Session) -> tuple[str, dict[str, str]]:
        return _find(transport, session, context.retry.timeout), {}

    return download(transport.archive, find, context)


def _find(transport: PypiTransport, session: requests.Session, timeout: float) -> str:
    import requests
    from pypi_simple import NoSuchProjectError, PyPISimple

    endpoint = os.environ.get(INDEX_ENV)
    client = PyPISimple(endpoint, session=session) if endpoint else PyPISimple(session=session)
    filename = transport.archive.filename
    try:
        page = client.get_project_page(transport.package, timeout=timeout)
    except NoSuchProjectError as error:
        raise _missing(transport, "the index does not know the package") from error
    except (requests.RequestException, ValueError) as error:
        raise SourceError(
            "index-failed",
            f"the package index gave no list of {transport.package}: {reason(error)}",
            hint=f"check the network, proxy settings and {INDEX_ENV}",
            context={"package": transport.package, "why": reason(error)},
        ) from error
    for package in page.packages:
        if package.filename == filename:
            digest = package.digests.get("sha256", transport.archive.sha256)
            if digest != transport.archive.sha256:
                raise hash_mismatch(filename, transport.archive.sha256, digest)
            return str(package.url)
    raise _missing(transport, f"the index does not list {filename}")


def _missing(transport: PypiTransport, why: str) -> SourceError:
    return SourceError(
        "not-on-index",
        f"{transport.package} {transport.version}: {why}",
        hint=f"is {INDEX_ENV} set to an index that is not complete?",
        context={"package": transport.package, "file": transport.archive.filename},
    )
