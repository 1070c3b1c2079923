"""Builds small engines and launchers for the other desktop systems, and runs wine and qemu."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from opencoti_build.pack.host import EngineFile, PackedFile
from opencoti_build.pack.launcher_build import build_launcher
from opencoti_build.targets import System, Target
from tests.lib.single_file import ENGINE_C, MODULE_C, compile_c, pack, parts

TRIPLES = {
    Target.X86_64_WINDOWS: "x86_64-windows-gnu",
    Target.AARCH64_LINUX: "aarch64-linux-musl",
    Target.AARCH64_MACOS: "aarch64-macos.11.0",
    Target.X86_64_MACOS: "x86_64-macos.11.0",
}
QEMU = ("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu")

# Prints what it got in UTF-8, whatever the code page is, and waits when told to.
WINDOWS_ENGINE_C = r"""
#include <windows.h>
#include <shellapi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
__declspec(dllimport) const char *module_name(void);
static void out(const WCHAR *text)
{
    static char utf8[1 << 17];
    WideCharToMultiByte(CP_UTF8, 0, text, -1, utf8, sizeof utf8, NULL, NULL);
    fputs(utf8, stdout);
}
static BOOL WINAPI stop(DWORD event)
{
    (void)event;
    puts("stopped");
    fflush(stdout);
    ExitProcess(9);
}
int main(void)
{
    static WCHAR self[40000];
    int argc;
    WCHAR **argv = CommandLineToArgvW(GetCommandLineW(), &argc);
    if (argc > 1 && !wcscmp(argv[1], L"--version"))
        return puts("opencoti-0.10.3-c3") < 0;
    GetEnvironmentVariableW(L"OPENCOTI_SELF", self, 40000);
    printf("self=");
    out(self);
    printf(" module=%s\n", module_name());
    for (int i = 0; i < argc; i++) {
        printf("<");
        out(argv[i]);
        printf(">");
    }
    puts("");
    fflush(stdout);
    if (argc > 1 && !wcscmp(argv[1], L"--wait")) {
        SetConsoleCtrlHandler(stop, TRUE);
        Sleep(60000);
    }
    return argc > 2 && !wcscmp(argv[1], L"--exit") ? (int)wcstol(argv[2], NULL, 10) : 0;
}
"""
LINKS = {
    System.WINDOWS: ["-lshell32", "-Wl,--dynamicbase", "-Wl,--nxcompat", "-Wl,--high-entropy-va"],
    System.LINUX: ["-static"],
    System.MACOS: [],
}


@functools.cache
def launcher(target: Target) -> Path:
    """The true launcher of ``target``, built once a test process."""
    return build_launcher(target, _folder() / f"launch-{target.value}")


@functools.cache
def engine(target: Target) -> tuple[EngineFile, ...]:
    """A tiny engine for ``target``; on Windows with a library that it needs."""
    folder = _folder() / target.value
    folder.mkdir()
    triple = TRIPLES[target]
    if target.system is System.WINDOWS:
        (folder / "module.c").write_text("__declspec(dllexport) " + MODULE_C)
        (folder / "engine.c").write_text(WINDOWS_ENGINE_C)
        flags = ["-shared", "-Wl,--out-implib,module.lib", *LINKS[target.system][1:]]
        compile_c(folder, "module.c", *flags, "-o", "ggml-base.dll", target=triple)
        sources, name = ["engine.c", "module.lib"], "opencoti-engine.exe"
    else:
        (folder / "engine.c").write_text(ENGINE_C + MODULE_C)
        sources, name = ["engine.c"], "opencoti-engine"
    compile_c(folder, *sources, *LINKS[target.system], "-o", name, target=triple)
    files = [EngineFile(name, folder / name, 0o755)]
    if target.system is System.WINDOWS:
        files.append(EngineFile("ggml-base.dll", folder / "ggml-base.dll", 0o755))
    return tuple(files)


def pack_desktop(out: Path, targets: Sequence[Target], **changes: object) -> PackedFile:
    """A single file for x86_64 Linux and ``targets``."""
    first = Target.X86_64_LINUX
    arguments: dict[str, object] = {
        "launchers": {first: parts().launcher, **{item: launcher(item) for item in targets}},
        "engines": {first: parts().files(), **{item: engine(item) for item in targets}},
    }
    return pack(out, **{**arguments, **changes})


@functools.cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="opencoti-test-desktop-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


class Wine:
    """A Windows of its own below ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.prefix = folder / "wine"
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "WINEPREFIX": str(self.prefix),
            "WINEDEBUG": "-all",
            "WINEARCH": "win64",
            "LC_ALL": "C.UTF-8",
            "WINEDLLOVERRIDES": "mscoree,mshtml,winemenubuilder.exe=",
        }
        self.start()

    def start(self) -> None:
        """Start the server and services, which stay: programs then start ten times faster.

        They must not hold a pipe that a test reads to its end.
        """
        null = subprocess.DEVNULL
        for command in (["wineserver", "-p600"], ["wine", "cmd", "/c", "exit 0"]):
            subprocess.run(command, env=self.env, stdin=null, stdout=null, stderr=null, timeout=300)

    @property
    def users(self) -> Path:
        """The folder of all users."""
        return self.prefix / "drive_c" / "users"

    def run(
        self, *command: str | Path, timeout: float = 120, cwd: Path | None = None, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a Windows program; its output is UTF-8 with LF."""
        done = subprocess.run(
            ["wine", *map(str, command)], env={**self.env, **env}, cwd=cwd, timeout=timeout,
            stdin=subprocess.DEVNULL, capture_output=True,
        )  # fmt: skip
        out, err = (
            text.decode("utf-8").replace("\r\n", "\n") for text in (done.stdout, done.stderr)
        )
        return subprocess.CompletedProcess(done.args, done.returncode, out, _without_notice(err))

    def path(self, path: Path) -> str:
        """What Windows calls a file of this machine."""
        return "Z:" + str(path).replace("/", "\\")

    def stop(self) -> None:
        """End everything that runs in this Windows."""
        subprocess.run(["wineserver", "-k"], env=self.env, capture_output=True)


def _without_notice(err: str) -> str:
    """stderr without what Debian's wrapper says about a missing 32-bit wine."""
    notice = ("it looks like wine32", "multiarch needs", 'execute "dpkg', "wine32:i386")
    lines = [line for line in err.splitlines(True) if not line.startswith(notice)]
    return "".join(lines)
