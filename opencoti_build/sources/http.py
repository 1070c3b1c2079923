"""The HTTP session: retries with back-off, certificates, and text of failures."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from opencoti_build import __version__
from opencoti_build.sources.context import Retry

if TYPE_CHECKING:
    import requests


def make_session(retry: Retry) -> requests.Session:
    """A session that repeats refused connections and answers 429 and 5xx."""
    import requests
    from requests.adapters import HTTPAdapter
    from urllib3.util.retry import Retry as Policy

    policy = Policy(
        total=retry.attempts,
        backoff_factor=retry.first_wait,
        backoff_max=retry.longest_wait,
        status_forcelist=(429, 500, 502, 503, 504),
        allowed_methods=("GET",),
        raise_on_status=False,
    )
    session = requests.Session()
    for scheme in ("https://", "http://"):
        session.mount(scheme, HTTPAdapter(max_retries=policy))
    session.headers["User-Agent"] = f"opencoti-build/{__version__}"
    # The bytes as they are: a content coding would change their count and hash.
    session.headers["Accept-Encoding"] = "identity"
    certificates = os.environ.get("PIP_CERT", "")
    if Path(certificates).is_file():
        session.verify = certificates
    return session


def public(url: str) -> str:
    """The URL without user name, password and query, fit for messages."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def reason(error: BaseException) -> str:
    """One line for a network failure: its innermost cause, without addresses of objects."""
    seen: BaseException = error
    while True:
        inner = seen.__cause__ or getattr(seen, "reason", None) or (seen.args or (None,))[0]
        if not isinstance(inner, BaseException) or inner is seen:
            break
        seen = inner
    text = str(seen).rpartition(">: ")[2] or type(seen).__name__
    return text.splitlines()[0]
