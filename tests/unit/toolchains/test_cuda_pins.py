"""The pins of the CUDA compiler and the extra ``cuda`` name the same packages."""

from __future__ import annotations

import re
import sys

from packaging.requirements import Requirement

from opencoti_build.paths import find_project
from opencoti_build.sources.pins import PinKind, PypiTransport, load_pins

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def test_the_extra_installs_what_is_pinned() -> None:
    root = find_project().root
    data = tomllib.loads((root / "pyproject.toml").read_text())
    extra = [Requirement(text) for text in data["project"]["optional-dependencies"]["cuda"]]
    pins = {
        pin.name: pin
        for pin in load_pins(root / "vendor").values()
        if pin.name.startswith("nvidia-") and not pin.name.endswith("-sbsa")
    }
    assert {item.name: str(item.specifier) for item in extra} == {
        name: f"=={pin.version}" for name, pin in pins.items()
    }
    runtime = load_pins(root / "vendor")["nvidia-cuda-runtime-sbsa"]
    assert runtime.version == pins["nvidia-cuda-runtime"].version
    for pin in [*pins.values(), runtime]:
        (way,) = pin.transports
        assert pin.kind is PinKind.TOOLCHAIN and isinstance(way, PypiTransport)
        assert way.version == pin.version and way.package == pin.name.removesuffix("-sbsa")
        machine = "aarch64" if pin is runtime else "x86_64"
        assert re.search(rf"-{pin.version}-py3-.*_{machine}\.whl$", way.archive.filename)
        if pin is not runtime:
            assert (way.archive.filename, way.archive.sha256) == (pin.file, pin.sha256)
