"""pygit2, loaded on a machine without certificates too.

It wants to know where they are when it is imported. Nothing here uses its network code: the ``git``
program fetches.
"""

from __future__ import annotations

import os
import ssl

import certifi

_NAME = "SSL_CERT_FILE"
_paths = ssl.get_default_verify_paths()
_needed = not (_paths.cafile or _paths.capath)
_before = os.environ.get(_NAME)
if _needed:
    os.environ[_NAME] = certifi.where()
try:
    import pygit2 as pygit2
finally:
    if _needed:
        del os.environ[_NAME]
        if _before is not None:
            os.environ[_NAME] = _before
