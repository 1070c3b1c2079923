"""pygit2 on a machine where nothing has installed certificates."""

from __future__ import annotations

import subprocess
import sys

NO_CERTIFICATES = """
import os, ssl
def paths():
    return ssl.DefaultVerifyPaths(os.environ.get("SSL_CERT_FILE"), None, "", "", "", "")
ssl.get_default_verify_paths = paths
os.environ.pop("SSL_CERT_FILE", None)
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", NO_CERTIFICATES + code]
    return subprocess.run(command, capture_output=True, text=True)


def test_pygit2_loads_without_certificates() -> None:
    assert "GitError" in run("import pygit2").stderr  # this is what a bare machine does
    done = run(
        "from opencoti_build.sources.libgit import pygit2\n"
        "print(pygit2.Oid(hex='0' * 40), 'SSL_CERT_FILE' in os.environ)"
    )
    assert done.stdout == f"{'0' * 40} False\n"
