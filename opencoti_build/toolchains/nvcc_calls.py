"""How the build calls nvcc: through a folder of links and small scripts in the cache.

The folder's name has the compiler's identity and nothing of the machine, so that what ccache
hashes (names of headers too) is the same for every cache folder and virtual environment.

CUDA's front ends make a module id from the absolute name of the source file and what they find in
it, for some files with a number of the process, and put it into the names of internal kernels and
tables. The scripts give them one made of the name inside the source tree (below
``$OPENCOTI_SOURCE``): the same sources then give the same bytes everywhere, and host code and
device code that were compiled apart fit together.
"""

from __future__ import annotations

import shlex
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from opencoti_build.paths import Cache, locked
from opencoti_build.toolchains.nvcc import NvccToolchain

SOURCE_ENV = "OPENCOTI_SOURCE"

LAYOUT = 5
"""Raise it when the scripts change: it is part of what compiled objects are kept under."""

_FRONT_ENDS = ("bin/cudafe++", "nvvm/bin/cicc")
_FRONT_END = """\
#!/bin/sh
last= file= source=
for a do
  shift
  case $last in
  --orig_src_path_name) a=/${a#"$%s"/} source=$a ;;
  --module_id_file_name) file=$a ;;
  esac
  last=$a
  [ "$a" = --gen_module_id_file ] || set -- "$@" "$a"
done
if [ -n "$file" ]; then
  crc=$(printf %%s "$source" | cksum)
  name=$(printf %%s "${source##*/}" | tr -c A-Za-z0-9 _)
  printf _%%08x_%%d_%%s "${crc%%%% *}" "${#name}" "$name" > "$file"
fi
exec %s "$@"
"""
# ccache takes calls with -c alone; what it stores is the output, whatever that is.
_DEVICE = """\
#!/bin/sh
for a do
  shift
  [ "$a" = -c ] && a=-fatbin
  set -- "$@" "$a"
done
exec "${0%/*}/../bin/nvcc" "$@"
"""
PROGRAMS = {"nvcc": "bin/nvcc", "device": "device/nvcc"}
"""In the folder; ``device`` is nvcc, but its ``-c`` makes the packed device code alone."""


def write_calls(nvcc: NvccToolchain, cache: Cache) -> Path:
    """The folder for ``nvcc``, made again when the compiler lies elsewhere than it did."""
    folder = cache.toolchains / f"nvcc-{nvcc.identity[:12]}"
    text = f"{LAYOUT} {nvcc.root}\n"
    marker = folder / "made-for"
    with locked(cache, folder.name):
        if not (marker.is_file() and marker.read_text() == text):
            folder.parent.mkdir(parents=True, exist_ok=True)
            temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
            try:
                _fill(temporary, nvcc.root)
                (temporary / marker.name).write_text(text)
                temporary.chmod(0o755)
                if folder.exists():
                    folder.rename(temporary / "old")
                temporary.rename(folder)
                shutil.rmtree(folder / "old", ignore_errors=True)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
    return folder


def _fill(folder: Path, root: Path) -> None:
    scripts = {
        name: _FRONT_END % (SOURCE_ENV, shlex.quote(str(root / name))) for name in _FRONT_ENDS
    }
    scripts[PROGRAMS["device"]] = _DEVICE
    for name in _links(root):
        if name not in scripts:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).symlink_to(root / name)
    for name, text in scripts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)


def _links(root: Path) -> Iterator[str]:
    """What is linked: the files of the folders that have a script, other folders whole."""
    opened = {parent for name in _FRONT_ENDS for parent in Path(name).parents}
    for relative in sorted(opened):
        for path in sorted((root / relative).iterdir()):
            if path.relative_to(root) not in opened:
                yield path.relative_to(root).as_posix()
