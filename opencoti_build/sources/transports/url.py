"""Archives at a plain URL, and files of Hugging Face repositories."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from opencoti_build.sources.context import FetchContext
from opencoti_build.sources.download import download
from opencoti_build.sources.pins import ArchiveTransport, HuggingFaceTransport

if TYPE_CHECKING:
    import requests


def fetch(transport: ArchiveTransport, context: FetchContext) -> Path:
    """The checked archive in the cache; raises what ``download`` raises."""

    def find(_: requests.Session) -> tuple[str, dict[str, str]]:
        return transport.url, {}

    return download(transport.archive, find, context)


def fetch_huggingface(transport: HuggingFaceTransport, context: FetchContext) -> Path:
    """The checked file in the cache; raises what ``download`` raises.

    ``HF_ENDPOINT`` and the token of ``hf auth login`` or ``HF_TOKEN`` are honoured.
    """

    def find(_: requests.Session) -> tuple[str, dict[str, str]]:
        import huggingface_hub

        url = huggingface_hub.hf_hub_url(
            transport.repo,
            transport.archive.filename,
            revision=transport.revision,
            endpoint=os.environ.get("HF_ENDPOINT"),
        )
        token = huggingface_hub.get_token()
        return str(url), {"Authorization": f"Bearer {token}"} if token else {}

    return download(transport.archive, find, context)
