"""Recipes: what is accepted, and that each kind of mistake is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from opencoti_build.errors import UsageError
from opencoti_build.paths import find_project
from opencoti_build.recipe import check_tag, load_recipe
from opencoti_build.targets import Target

GOOD = """\
format = 1
name = "engine"
version = "1.2.3"
base = "llama.cpp"
[targets.x86_64-linux]
toolchain = "zig"
glibc = "2.28"
cpu_variants = ["haswell"]
[[variants]]
suffix = "-x86_64.llamafile"
"""


def load(folder: Path, text: str):
    path = folder / "r.toml"
    path.write_text(text)
    return load_recipe(path)


def test_the_shipped_recipe_is_valid() -> None:
    recipe = load_recipe(find_project().recipes / "c3.toml")
    assert recipe.version == "0.10.3"
    assert Target.X86_64_LINUX in [item.target for item in recipe.targets]
    name = recipe.file_name("c3", recipe.variants[0])
    assert name == "opencoti-llamafile-0.10.3-c3-x86_64.llamafile"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("format = 1", "format = 2"),
        ("format = 1", "format = 1\nsurprise = 1"),
        ('version = "1.2.3"', 'version = "1.2.3-rc"'),
        ('base = "llama.cpp"\n', ""),
        ("targets.x86_64-linux", "targets.pdp11-unix"),
        ('toolchain = "zig"', 'toolchain = "tcc"'),
        ('glibc = "2.28"', 'glibc = "2.17"'),
        ('suffix = "-x86_64.llamafile"', 'suffix = "../x"'),
        ("[[variants]]", '[[variants]]\nsuffix = "-x86_64.llamafile"\n[[variants]]'),
        ("[[variants]]", "[[variants"),
    ],
)
def test_mistakes_are_refused(tmp_path: Path, old: str, new: str) -> None:
    assert old in GOOD
    load(tmp_path, GOOD)
    with pytest.raises(UsageError) as caught:
        load(tmp_path, GOOD.replace(old, new, 1))
    assert caught.value.reason == "recipe-invalid"


def test_missing_recipe_names_the_others(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(GOOD)
    with pytest.raises(UsageError) as caught:
        load_recipe(tmp_path / "b.toml")
    assert caught.value.reason == "recipe-missing"
    assert caught.value.context["recipes"] == "a"


def test_targets_are_selected_by_name(tmp_path: Path) -> None:
    recipe = load(tmp_path, GOOD)
    assert recipe.select(()) == recipe.targets
    assert recipe.select(("x86_64-linux", "x86_64-linux")) == recipe.targets
    with pytest.raises(UsageError) as caught:
        recipe.select(("aarch64-macos",))
    assert caught.value.reason == "target-not-in-recipe"


@pytest.mark.parametrize("tag", ["", "-c3", "c3/..", "c 3", "c3\n", "x" * 33, "ü"])
def test_bad_tags_are_refused(tag: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_tag(tag)
    assert caught.value.reason == "bad-tag"
