"""A stand-in for upstream llamafile and its toolchain, built with ordinary git, make and Python.

It has what matters of upstream's layout: submodules that its set-up asks git about, patches and a
list of sources of its own, a toolchain that the makefile wants under ``.cosmocc``, and a default
goal that leaves an APE with a zip part at ``o//llamafile/llamafile``.
"""

from __future__ import annotations

import io
import os
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.lib.ape import tiny_ape
from tests.lib.file_server import FileServer
from tests.lib.series import PatchMaker, make_store
from tests.lib.source_archives import git, make_repository, tree_tar, zip_info
from tests.lib.source_pins import archive

MAKEFILE = r"""
COSMOCC = .cosmocc/4.0.2
CXX = $(COSMOCC)/bin/cosmoc++

.PHONY: all
all: o/$(MODE)/llamafile/llamafile
ifeq ($(filter setup,$(MAKECMDGOALS)),)
include llama.cpp/BUILD.mk
endif

OBJS = $(LLAMA_SRCS_CPP:%.cpp=o/$(MODE)/%.cpp.o)
o/$(MODE)/%.cpp.o: %.cpp $(COSMOCC)
	@mkdir -p $(@D)
	$(CXX) -c -o $@ $<
o/$(MODE)/llamafile/llamafile: $(OBJS)
	@mkdir -p $(@D)
	test "$$STAND_IN_MAKE" = yes
	echo 'number $(LLAMA_BUILD_NUMBER) commit $(LLAMA_BUILD_COMMIT)' > o/build-info
	$(CXX) -o $@ $^ o/build-info

.PHONY: setup
setup:
	@mkdir -p o/tmp
	@for module in llama.cpp third_party/zipalign; do \
		if [ ! -f $$module/.git ]; then git submodule update --init $$module || exit; fi; \
	done
	@cd llama.cpp && git submodule update --init
	@sh patches/apply.sh
"""
APPLY = r"""
set -e
cd llama.cpp
[ -z "$(git status --porcelain)" ] || { echo 'the tree is dirty'; exit 1; }
git rev-parse HEAD > /dev/null
cp ../patches/BUILD.mk .
printf 'upstream was here\n' >> src/llama.cpp
rm Makefile
"""
LISTS = r"""
LLAMA_BUILD_NUMBER := $(shell date +%s)
LLAMA_BUILD_COMMIT := unknown

LLAMA_SRCS_CPP := \
	llama.cpp/src/llama.cpp \
	llama.cpp/src/other.cpp
"""
# Copies; what has an "#error" does not compile. A link packs its inputs as a zip does by default:
# deflated, with the time, and with entries for folders.
COMPILER = r"""
import pathlib, sys, zipfile
arguments = sys.argv[1:]
compiling = arguments[0] == "-c"
out, *inputs = arguments[arguments.index("-o") + 1 :]
if compiling:
    data = pathlib.Path(inputs[0]).read_bytes()
    for number, line in enumerate(data.decode().splitlines(), 1):
        if line.startswith("#error"):
            sys.exit(f"{inputs[0]}:{number}:2: error: {line}")
    pathlib.Path(out).write_bytes(data)
    sys.exit()
program = pathlib.Path(__file__).parent.parent / "lib" / "ape"
with open(out, "w+b") as stream:
    stream.write(program.read_bytes())
    with zipfile.ZipFile(stream, "a", zipfile.ZIP_DEFLATED) as made:
        made.writestr("sources/", b"")
        for name in inputs:
            made.write(name, "sources/" + pathlib.Path(name).name)
pathlib.Path(out).chmod(0o755)
"""
BASE = {
    "LICENSE": b"the licence of llama.cpp\n",
    "Makefile": b"all:\n",
    ".gitignore": b"*.mk\n",
    "src/llama.cpp": b"".join(b"line %d\n" % number for number in range(20)),
    "src/other.cpp": b"other\n",
}
# Upstream's copy of the base: near what the series changes, so that only a three-way merge fits.
NEWER = {
    "src/llama.cpp": BASE["src/llama.cpp"].replace(b"line 6\n", b"line 6, newer\n"),
    "src/other.cpp": b"newer\n",
}
RECIPE = """\
format = 1
name = "opencoti-llamafile"
version = "0.10.3"
base = "llama.cpp"
[targets.x86_64-linux]
toolchain = "cosmocc"
[targets.x86_64-windows]
toolchain = "cosmocc"
[cosmocc]
source = "llamafile"
patch_root = "llama.cpp"
[[variants]]
suffix = "-x86_64.llamafile"
targets = ["x86_64-linux"]
[[variants]]
suffix = "-win-x86_64.llamafile.exe"
windows = true
"""
_HEAD = 'format = 1\nname = "{}"\nkind = "{}"\nversion = "{}"\nlicense = "MIT"\n'


def toolchain_zip(program: bytes | None = None, without: str = "") -> bytes:
    """The stand-in for cosmocc's zip, with ``program`` as what every link makes."""
    files = {
        "LICENSE.gcc": b"the licence of a compiler\n",
        "bin/make": b'#!/bin/sh\nSTAND_IN_MAKE=yes exec make "$@"\n',
        "bin/cosmoc++": f"#!{sys.executable}\n{COMPILER}".encode(),
        "lib/ape": tiny_ape() if program is None else program,
    }
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as made:
        for name, data in files.items():
            if name != without:
                made.writestr(zip_info(name, 0o755 if name.startswith("bin/") else 0o644), data)
    return out.getvalue()


@dataclass
class StandIn:
    """A project whose pins name the stand-in repositories and toolchain; change it, then ``write``.

    ``files`` are upstream's own; ``base`` is what the series was made on, and ``copy`` upstream's
    copy of it.
    """

    folder: Path
    server: FileServer
    files: dict[str, bytes] = field(
        default_factory=lambda: {
            "LICENSE": b"the licence of llamafile\n",
            "Makefile": MAKEFILE.encode(),
            "patches/BUILD.mk": LISTS.encode(),
            "patches/apply.sh": APPLY.encode(),
        }
    )
    copy: dict[str, bytes] = field(default_factory=lambda: {**BASE, **NEWER})
    toolchain: bytes = field(default_factory=toolchain_zip)
    locked: bool = True

    @property
    def project(self) -> Path:
        return self.folder / "project"

    def write(self, schema: Path) -> None:
        """Write project, repositories and downloads."""
        for name in ("recipes", "vendor", "manifests"):
            (self.project / name).mkdir(parents=True)
        (self.project / "manifests" / "schema").symlink_to(schema)
        (self.project / "LICENSE").write_text("our licence\n")
        (self.project / "recipes" / "c3.toml").write_text(RECIPE)
        commit = self._upstream()
        ours = tree_tar("pkg-1.0/", BASE)
        pins = {
            "llama.cpp": ("source", "1", self._download("base.tar.gz", ours, "pkg-1.0")),
            "cosmocc": ("toolchain", "4.0.2", self._download("cosmocc.zip", self.toolchain)),
            "llamafile": ("source", "0.10.3", self._git(commit)),
        }
        for name, (kind, version, rest) in pins.items():
            text = _HEAD.format(name, kind, version) + rest
            (self.project / "vendor" / f"{name}.toml").write_text(text)

    def series(self) -> PatchMaker:
        """Makes patches of the project on the base."""
        store, tree = make_store(self.folder / "maker", BASE)
        return PatchMaker(store, tree, self.project / "patches")

    def _upstream(self) -> str:
        """Upstream's repository with two submodules; its commit."""
        root = self.folder / "upstream"
        modules = {"llama.cpp": self.copy, "third_party/zipalign": {"zipalign.c": b"z\n"}}
        for path, files in modules.items():
            make_repository(self.folder / Path(path).name, files)
        make_repository(root, self.files)
        for path in modules:
            module = self.folder / Path(path).name
            git(root, "submodule", "--quiet", "add", str(module), path)
            git(root, "config", "-f", ".gitmodules", f"submodule.{path}.url", module.as_uri())
        git(root, "add", ".gitmodules")
        git(root, "commit", "-qm", "submodules")
        return git(root, "rev-parse", "HEAD")

    def _git(self, commit: str) -> str:
        lock = f'commit = "{commit}"' if self.locked else 'ref = "0.10.3"'
        url = (self.folder / "upstream").as_uri()
        return f'[[transports]]\nkind = "git"\nurl = "{url}"\n{lock}\nsubmodules = true\n'

    def _download(self, name: str, data: bytes, member: str | None = None) -> str:
        self.server.files[f"/{name}"] = data
        file = archive(name, data)
        lock = f'sha256 = "{file.sha256}"\nsize = {file.size}\n'
        way = f'[[transports]]\nkind = "archive"\nurl = "{self.server.url}/{name}"\n'
        way += f'filename = "{name}"\n{lock}'
        return way + f'member = "{member}"\n' if member else f'file = "{name}"\n{lock}{way}'


def environment(stand_in: StandIn, cache: Path) -> Mapping[str, str]:
    """The variables that make the command line use the stand-in."""
    return {
        "OPENCOTI_BUILD_PROJECT": str(stand_in.project),
        "OPENCOTI_BUILD_CACHE": str(cache),
        "PATH": os.environ["PATH"],
    }
