from __future__ import annotations

from pathlib import Path

import pytest

from opencoti_build.errors import OpencotiError
from opencoti_build.sources.batch import choose
from opencoti_build.sources.pins import PinKind, TransportKind, find_pin, load_pins

VENDOR = Path(__file__).resolve().parents[3] / "vendor"
HEX = "ab" * 32
GOOD = f"""
format = 1
name = "x"
kind = "source"
version = "1"
license = "MIT"
tree = "{"1" * 40}"
[[transports]]
kind = "pypi"
package = "x"
version = "1.0"
filename = "x-1.0.tar.gz"
sha256 = "{HEX}"
size = 3
member = "x-1.0"
"""


def load(tmp_path: Path, text: str) -> str:
    """The reason for refusing ``text``, or "" when it is taken."""
    (tmp_path / "x.toml").write_text(text)
    try:
        load_pins(tmp_path)
    except OpencotiError as error:
        return error.reason
    return ""


def test_own_pins() -> None:
    pins = load_pins(VENDOR)
    names = ["cosmocc", "gemma-3-270m", "llama.cpp", "llama.cpp-next", "llamafile"]
    cuda = ["cccl", "crt", "nvcc", "runtime", "runtime-sbsa"]
    names += [*(f"nvidia-cuda-{name}" for name in cuda), "nvidia-nvvm"]
    assert list(pins) == [*names, "smollm2-135m-instruct"]
    assert pins["cosmocc"].kind is PinKind.TOOLCHAIN and pins["cosmocc"].is_file
    assert {way.archives[0].sha256 for way in pins["cosmocc"].transports} == {
        pins["cosmocc"].sha256
    }
    assert pins["cosmocc"] not in choose(pins, (), everything=True)
    assert choose(pins, ("cosmocc",), everything=False) == [pins["cosmocc"]]
    assert pins["llama.cpp"].tree == "cfe5a0e2b118acc9135ead22e0febcd6cdaee5ca"
    kinds = [way.kind for way in pins["llama.cpp"].transports]
    assert kinds == [TransportKind.PYPI, TransportKind.GIT]
    assert pins["gemma-3-270m"].kind is PinKind.MODEL
    assert len(pins["gemma-3-270m"].transports[0].archives) == 4


def test_good(tmp_path: Path) -> None:
    assert load(tmp_path, GOOD) == ""
    assert load_pins(tmp_path)["x"].transports[0].archives[0].size == 3


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("format = 1", "format = 2"),
        ("format = 1", ""),
        ('name = "x"', 'name = "X y"'),
        ('name = "x"', 'name = "x"\nextra = 1'),
        ('kind = "source"', 'kind = "thing"'),
        ('kind = "pypi"', 'kind = "ftp"'),
        ("1" * 40, "1" * 39),
        ("1" * 40, "G" * 40),
        (HEX, HEX[1:]),
        (HEX, HEX.upper()),
        ("size = 3", "size = 0"),
        ("size = 3", "size = true"),
        ("size = 3", 'size = "3"'),
        ("size = 3", "size = 3\nmirror = 1"),
        ('filename = "x-1.0.tar.gz"', 'filename = "../x"'),
        ('filename = "x-1.0.tar.gz"', ""),
        ('kind = "pypi"', 'kind = "huggingface"'),
        ("[[transports]]", "[transports]"),
        ("format = 1", "format = "),
    ],
)
def test_bad(tmp_path: Path, old: str, new: str) -> None:
    assert old in GOOD
    assert load(tmp_path, GOOD.replace(old, new, 1)) == "bad-pin"


def test_git_needs_ref_or_commit(tmp_path: Path) -> None:
    head = GOOD.partition("[[transports]]")[0]
    git = f'{head}[[transports]]\nkind = "git"\nurl = "https://example.org/x"\n'
    assert load(tmp_path, git) == "bad-pin"
    assert load(tmp_path, git + 'ref = "v1"\n') == ""
    assert not load_pins(tmp_path)["x"].locked
    assert load(tmp_path, git + f'commit = "{"2" * 40}"\n') == ""
    assert load_pins(tmp_path)["x"].locked
    assert load(tmp_path, git.replace("https", "ext") + 'ref = "v1"\n') == "bad-pin"


def test_two_of_one_name(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "y.toml").write_text(GOOD)
    assert load(tmp_path, GOOD) == "duplicate-pin"


def test_none_and_unknown(tmp_path: Path) -> None:
    with pytest.raises(OpencotiError) as caught:
        load_pins(tmp_path)
    assert caught.value.reason == "no-pins"
    with pytest.raises(OpencotiError) as caught:
        find_pin(load_pins(VENDOR), "nope")
    assert (caught.value.reason, caught.value.exit_code) == ("unknown-pin", 2)
