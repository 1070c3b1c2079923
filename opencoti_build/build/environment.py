"""The closed environment of compilers: nothing of the user's can change what they put out."""

from __future__ import annotations

import os
from pathlib import Path

from opencoti_build.digest import content_key
from opencoti_build.paths import Cache

ENGINE_OBJECTS, CUDA_OBJECTS = "5G", "20G"
"""How large ccache's two folders may become."""
_PASSED = ("HOME", "PATH", "TMPDIR", "LANG", "TERM")


def compiler_environment(
    objects: Path, cache: Cache, compiler_type: str, compiler_key: object, max_size: str
) -> dict[str, str]:
    """What every compiler call gets: few of the user's variables, and ccache's settings.

    ``objects`` is ccache's folder, ``compiler_type`` its name for the compiler, ``compiler_key``
    the plain data that identifies it, ``max_size`` the folder's size limit (``5G``).
    """
    return {
        **{name: os.environ[name] for name in _PASSED if name in os.environ},
        "LC_ALL": "C",
        "TZ": "UTC",
        "CCACHE_DIR": str(objects),
        "CCACHE_CONFIGPATH": os.devnull,
        "CCACHE_MAXSIZE": max_size,
        "CCACHE_BASEDIR": str(cache.root),
        "CCACHE_NOHASHDIR": "1",
        "CCACHE_COMPILERTYPE": compiler_type,
        "CCACHE_COMPILERCHECK": f"string:{content_key(compiler_key)}",
    }
