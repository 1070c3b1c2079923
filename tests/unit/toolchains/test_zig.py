"""The compiler wrappers: what they pass on, and what identifies a toolchain."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from opencoti_build.targets import Target
from opencoti_build.toolchains.doctor import examine
from opencoti_build.toolchains.tools import PACKAGES, Tool, tool
from opencoti_build.toolchains.zig import ZigToolchain


@pytest.fixture
def echo(tmp_path: Path) -> Tool:
    """A stand-in for zig that prints its arguments, one a line."""
    path = tmp_path / "a folder" / "zig"
    path.parent.mkdir()
    path.write_text('#!/bin/sh\nfor a do printf "%s\\n" "$a"; done\n')
    path.chmod(0o755)
    return Tool("zig", path, "0.15.2", "f" * 32)


def passed(toolchain: ZigToolchain, folder: Path, *args: str, **env: str) -> list[str]:
    wrappers = toolchain.write_wrappers(folder / "tool chains")
    done = subprocess.run(
        [wrappers.cxx, *args], env={**os.environ, **env}, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def test_target_and_cpu_come_first(echo: Tool, tmp_path: Path) -> None:
    toolchain = ZigToolchain(echo, Target.X86_64_LINUX, "2.28")
    seen = passed(toolchain, tmp_path, "-c", "a b.cpp")
    assert seen[:3] == ["c++", "-target", "x86_64-linux-gnu.2.28"]
    assert seen[3].startswith("-mcpu=x86_64_v2")
    assert seen[4:] == ["-O3", "-g0", "-c", "a b.cpp"]


def test_paths_of_this_machine_are_mapped_away(echo: Tool, tmp_path: Path) -> None:
    toolchain = ZigToolchain(echo, Target.X86_64_LINUX, "2.28")
    names = {"OPENCOTI_BUILD": "/b d", "OPENCOTI_SOURCE": "/s", "OPENCOTI_SOURCE_RELATIVE": "../s"}
    seen = passed(toolchain, tmp_path, "-c", "x.cpp", **names)
    assert seen[6:] == [
        "-ffile-prefix-map=/b d=build",
        "-ffile-prefix-map=/s/=",
        "-ffile-prefix-map=../s/=",
        "-c",
        "x.cpp",
    ]


def test_every_link_takes_the_same_libraries_of_zig(echo: Tool, tmp_path: Path) -> None:
    toolchain = ZigToolchain(echo, Target.X86_64_LINUX, "2.28")
    assert passed(toolchain, tmp_path, "x.cpp")[6:] == ["-s", "x.cpp"]
    for only_compile in ("-c", "-E", "-S"):
        assert passed(toolchain, tmp_path, "x.cpp", only_compile)[6:] == ["x.cpp", only_compile]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("-march=armv8-a", "-mcpu=generic"),
        ("-march=armv8.2-a+dotprod+fp16+sve", "-mcpu=generic+v8_2a+dotprod+fullfp16+sve"),
        ("-march=armv8.6-a+dotprod+i8mm+nosve", "-mcpu=generic+v8_6a+dotprod+i8mm-sve"),
        ("-DX=-march=armv8-a", "-DX=-march=armv8-a"),
    ],
)
def test_arm_features_are_named_as_zig_names_them(
    echo: Tool, tmp_path: Path, given: str, wanted: str
) -> None:
    toolchain = ZigToolchain(echo, Target.AARCH64_LINUX, "2.28")
    assert passed(toolchain, tmp_path, "-c", given, "x.c")[6:] == ["-c", wanted, "x.c"]


def test_every_arm_mac_is_at_least_the_first(echo: Tool, tmp_path: Path) -> None:
    toolchain = ZigToolchain(echo, Target.AARCH64_MACOS, "11.0")
    seen = passed(toolchain, tmp_path, "-c", "-march=armv8.6-a+dotprod+i8mm+nosve")
    assert seen[6:] == ["-c", "-mcpu=apple_m1+dotprod+i8mm-sve"]


def test_macos_modules_are_libraries(echo: Tool, tmp_path: Path) -> None:
    toolchain = ZigToolchain(echo, Target.X86_64_MACOS, "11.0")
    assert passed(toolchain, tmp_path, "-bundle", "x.o")[6:] == ["-s", "-dynamiclib", "x.o"]
    other = ZigToolchain(echo, Target.X86_64_LINUX, "2.28")
    assert passed(other, tmp_path, "-bundle", "x.o")[6:] == ["-s", "-bundle", "x.o"]


def test_the_key_holds_what_can_change_the_output(echo: Tool) -> None:
    one = ZigToolchain(echo, Target.X86_64_LINUX, "2.28").to_key()
    assert ZigToolchain(echo, Target.X86_64_LINUX, "2.31").to_key() != one
    assert ZigToolchain(echo, Target.AARCH64_LINUX, "2.28").to_key() != one
    other = Tool("zig", Path("/elsewhere/zig"), echo.version, echo.identity)
    assert ZigToolchain(other, Target.X86_64_LINUX, "2.28").to_key() == one


def test_only_clang_20_needs_a_switch_for_512_bits(echo: Tool) -> None:
    newer = Tool("zig", echo.path, "0.17.1", echo.identity)
    assert ZigToolchain(echo, Target.X86_64_LINUX, "2.28").avx512_flags == ("-mevex512",)
    assert ZigToolchain(newer, Target.X86_64_LINUX, "2.28").avx512_flags == ()
    assert ZigToolchain(echo, Target.AARCH64_LINUX, "2.28").avx512_flags == ()


def test_the_link_to_zigs_headers_follows_the_installation(echo: Tool, tmp_path: Path) -> None:
    (echo.path.parent / "lib").mkdir()
    toolchain = ZigToolchain(echo, Target.X86_64_LINUX, "2.28")
    link = Path(toolchain.environment(tmp_path / "t")["ZIG_LIB_DIR"])
    assert link.resolve() == (echo.path.parent / "lib").resolve()
    moved = Tool("zig", tmp_path / "moved/zig", echo.version, echo.identity)
    (tmp_path / "moved/lib").mkdir(parents=True)
    again = ZigToolchain(moved, Target.X86_64_LINUX, "2.28").environment(tmp_path / "t")
    assert Path(again["ZIG_LIB_DIR"]) == link
    assert link.resolve() == (tmp_path / "moved/lib").resolve()


def test_the_tools_of_this_installation_are_found() -> None:
    for name in PACKAGES:
        found = tool(name)
        assert found.path.is_file()
        assert found.version[0].isdigit()
    assert all(row.found for row in examine() if row.needed)
