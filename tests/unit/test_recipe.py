"""Recipes: what is accepted, and that each kind of mistake is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from opencoti_build.cli.artifact import command as artifact
from opencoti_build.errors import UsageError
from opencoti_build.paths import find_project
from opencoti_build.recipe import ReferenceRecipe, Toolchain, check_tag, load_recipe
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
        ('toolchain = "zig"', 'toolchain = "cosmocc"'),
        ("[[variants]]", '[cosmocc]\nsource = "x"\n[[variants]]'),
        ("[[variants]]", '[cosmocc]\nsource = "x"\npatch_root = "../y"\n[[variants]]'),
        ("[[variants]]", '[cosmocc]\nsource = "x"\npatch_root = "/y"\n[[variants]]'),
        ("[[variants]]", '[targets.x86_64-windows]\ntoolchain = "cosmocc"\n[[variants]]'),
        ("[[variants]]", '[[variants]]\nsuffix = "-x86_64.llamafile"\n[[variants]]'),
        ("[[variants]]", "[cuda.x86_64-linux]\n[[variants]]"),
        ("[[variants]]", "[cuda.x86_64-linux]\narchitectures = []\n[[variants]]"),
        ("[[variants]]", '[cuda.x86_64-linux]\narchitectures = ["sm_90"]\n[[variants]]'),
        ("[[variants]]", '[cuda.pdp11-unix]\narchitectures = ["90"]\n[[variants]]'),
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


VARIANT = '[[variants]]\nsuffix = "-x86_64.llamafile"\n'


def test_variants(tmp_path: Path) -> None:
    text = GOOD + 'targets = ["x86_64-linux"]\nembed = "ggml-cuda.so"\ncomponent = "cuda"\n'
    text += '[[variants]]\nsuffix = "-win-x86_64.llamafile.exe"\nwindows = true\n'
    first, second = load(tmp_path, text).variants
    assert (first.embed, first.component, first.windows) == ("ggml-cuda.so", "cuda", False)
    assert (second.windows, second.targets) == (True, (Target.X86_64_WINDOWS,))
    assert first.fits([Target.X86_64_LINUX]) and not first.fits([Target.X86_64_WINDOWS])
    assert second.fits([Target.X86_64_LINUX, Target.X86_64_WINDOWS]) and not second.fits([])
    assert load(tmp_path, GOOD).variants[0].fits([])


@pytest.mark.parametrize(
    "new",
    [
        '[[variants]]\nsuffix = "-win.exe"\n',
        '[[variants]]\nsuffix = "-x86_64.llamafile"\nwindows = true\n',
        '[[variants]]\nsuffix = "-win.exe"\nwindows = "yes"\n',
        '[[variants]]\nsuffix = "-win.exe"\nwindows = true\ntargets = ["x86_64-linux"]\n',
        '[[variants]]\nsuffix = "-w.exe"\nwindows = true\nembed = "a.dll"\ncomponent = "c"\n',
        VARIANT + 'embed = "ggml-cuda.so"\n',
        VARIANT + 'component = "cuda"\n',
        VARIANT + 'embed = "../x.so"\ncomponent = "cuda"\n',
        VARIANT + 'targets = ["pdp11-unix"]\n',
    ],
)
def test_variants_that_contradict_themselves(tmp_path: Path, new: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(tmp_path, GOOD.replace(VARIANT, new))
    assert caught.value.reason == "recipe-invalid"


COSMOCC = '[cosmocc]\nsource = "llamafile"\npatch_root = "llama.cpp"\n'


def test_toolchains(tmp_path: Path) -> None:
    """The option takes the place of the targets' toolchain where the recipe has what it needs."""
    recipe = load(tmp_path, GOOD.replace("[[variants]]", COSMOCC + "[[variants]]"))
    assert recipe.reference == ReferenceRecipe("llamafile", "llama.cpp")
    assert recipe.toolchain() is Toolchain.ZIG
    assert recipe.toolchain("cosmocc") is Toolchain.COSMOCC
    (option,) = (item for item in artifact.params if item.name == "toolchain")
    assert list(getattr(option.type, "choices", ())) == [item.value for item in Toolchain]
    with pytest.raises(UsageError) as caught:
        load(tmp_path, GOOD).toolchain("cosmocc")
    assert caught.value.reason == "toolchain-not-in-recipe"


def test_a_recipe_for_cosmocc_alone(tmp_path: Path) -> None:
    lines = 'toolchain = "zig"\nglibc = "2.28"\ncpu_variants = ["haswell"]\n'
    recipe = load(tmp_path, GOOD.replace(lines, 'toolchain = "cosmocc"\n' + COSMOCC))
    assert recipe.toolchain() is Toolchain.COSMOCC
    with pytest.raises(UsageError) as caught:
        recipe.toolchain("zig")
    assert caught.value.reason == "toolchain-not-in-recipe"


def test_cuda_architectures_are_sorted_by_number(tmp_path: Path) -> None:
    table = '[cuda.x86_64-linux]\narchitectures = ["120f", "90", "75", "90"]\n'
    recipe = load(tmp_path, GOOD.replace("[[variants]]", table + COSMOCC + "[[variants]]"))
    (library,) = recipe.cuda
    assert library.architectures == ("75", "90", "120f")
    assert library.component == "ggml-cuda x86_64-linux"
    assert recipe.reference is not None
