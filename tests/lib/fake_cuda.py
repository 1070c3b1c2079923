"""A stand-in for CUDA's compiler: quick, with the outputs that the build looks into.

``install`` lays it out like CUDA. Its nvcc reads ``__global__ void NAME`` and ``#include "…"`` in
the source, writes a depfile, and puts out a container with an ELF file (a section for each
kernel), or an object with their names; with ``// other names`` in the source the two differ. Each
call is a line of ``calls.log``: ``device sm_90 one.cu``.
"""

from __future__ import annotations

import hashlib
import re
import struct
import subprocess
import sys
from pathlib import Path

from opencoti_build.toolchains.nvcc import HostCxx, NvccToolchain

_ROOT = Path(__file__).resolve().parents[2]
_PROGRAMS = {"bin/nvcc": "nvcc"}
_UNUSED = ("bin/cudafe++", "bin/fatbinary", "bin/ptxas", "nvvm/bin/cicc")


def install(root: Path) -> NvccToolchain:
    """Put the stand-in into ``root``; calls are logged in ``root``/calls.log."""
    for name in (*_PROGRAMS, *_UNUSED):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(_ROOT)!r})\n"
            f"from tests.lib import fake_cuda\n"
            f"sys.exit(fake_cuda.{_PROGRAMS.get(name, 'nothing')}(sys.argv[1:], {str(root)!r}))\n"
        )
        path.chmod(0o755)
    for name in ("include", "lib64"):
        (root / name).mkdir()
    for name in ("cuda_runtime_api.h", "crt/host_config.h", "cub/version.cuh"):
        (root / "include" / name).parent.mkdir(exist_ok=True)
        (root / "include" / name).write_text("#define CUDART_VERSION 13000\n")
    (root / "EULA.txt").write_text("a licence\n")
    library, support = root / "lib64" / "libstdc++.a", root / "lib64" / "libgcc.a"
    for archive in (root / "lib64" / "libcudart_static.a", library, support):
        archive.write_bytes(b"!<arch>\n")
    host = HostCxx(Path("g++"), "12", library, support, Path("objcopy"))
    return NvccToolchain(root, "13.0.88", "5" * 32, host)


def calls(root: Path) -> list[str]:
    """What was compiled since the last look, sorted."""
    log = root / "calls.log"
    lines = sorted(log.read_text().splitlines()) if log.exists() else []
    log.unlink(missing_ok=True)
    return lines


def nothing(arguments: list[str], root: str) -> int:
    """A program that no stand-in calls."""
    return 1


def nvcc(arguments: list[str], root: str) -> int:
    """nvcc, for device code (-fatbin) or a whole object (-c)."""
    from tests.lib.cuda import container, entry

    source = Path(next(a for a in arguments if a.endswith(".cu")))
    output = Path(arguments[arguments.index("-o") + 1])
    text, read = source.read_text(), [str(source)]
    folders = [Path(a[2:]) for a in arguments if a.startswith("-I")]
    for name in re.findall(r'#include "(.+)"', text):
        found = next(f / name for f in (source.parent, *folders) if (f / name).exists())
        text += found.read_text()
        read.append(str(found))
    if "-include" in arguments:
        text += Path(arguments[arguments.index("-include") + 1]).read_text()
    depfile = Path(arguments[arguments.index("-MF") + 1])
    depfile.write_text(f"{output}: {' '.join(read)}\n")
    if "#error" in text:
        print(f"{source}:1: error: so it says", file=sys.stderr)
        return 1
    code = next(a for a in arguments if a.startswith("--generate-code=")).split("code=[")[1][:-1]
    kernels = re.findall(r"__global__ void (\w+)", text)
    device = "-fatbin" in arguments
    with (Path(root) / "calls.log").open("a") as log:
        log.write(f"{'device' if device else 'host'} {code} {source.name}\n")
    digest = hashlib.sha256(f"{code} {text}".encode()).digest()
    if device:
        if "// other names" in text:
            kernels = [f"{name}_other" for name in kernels]
        data = _elf(kernels, digest)
        output.write_bytes(container(entry(code[3:], data + bytes(-len(data) % 8))))
        return 0
    entries = "\\000".join(["", *kernels, ""])
    functions = "".join(
        f".globl {name}\n{name}: ret\n" for name in re.findall(r"int (ggml_backend_\w+)\(", text)
    )
    assembly = (
        f'.section .nv_fatbin,"a"\n.align 8\nfatbinData: .quad 0\n'
        f'.section .nvFatBinSegment,"aw"\n.align 8\n.quad 0x466243b1, fatbinData, 0\n'
        f'.data\n.ascii "{entries}{digest.hex()}"\n.text\n{functions}'
    )
    subprocess.run(["gcc", "-c", "-x", "assembler", "-", "-o", str(output)],
                   input=assembly, text=True, check=True)  # fmt: skip
    return 0


def _elf(kernels: list[str], content: bytes) -> bytes:
    """An ELF file with a section ``.nv.constant0.<name>`` for each kernel."""
    names = b"\0"
    rows = []
    for name in [f".nv.constant0.{kernel}" for kernel in kernels] + [".shstrtab"]:
        rows.append(len(names))
        names += name.encode() + b"\0"
    names += b"\0" * (-len(names) % 8)
    start = 64 + len(content) + len(names)
    head = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01" + bytes(9), 2, 190, 1, 0, 0,
                       start, 0, 64, 0, 0, 64, len(rows) + 1, len(rows))  # fmt: skip
    table = bytes(64)
    for at, number in enumerate(rows, 1):
        last = at == len(rows)
        offset, size = (64 + len(content), len(names)) if last else (64, len(content))
        table += struct.pack("<IIQQQQIIQQ", number, 3 if last else 1, 0, 0, offset, size,
                             0, 0, 8, 0)  # fmt: skip
    return head + content + names + table
