"""Time the series on a real base: check, apply, no-op, edit, export, a move of the base.

usage: python benchmarks/series_apply.py OBJECTS TREE [PATCHES]

OBJECTS is a bare git store that holds TREE; nothing is written to it. The synthetic series has
150 patches unless PATCHES says otherwise; each edits three source files of the base and adds one
of 200 lines.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from opencoti_build.series import editing
from opencoti_build.series.apply import Applied, apply_series
from opencoti_build.series.bench import Bench, Done
from opencoti_build.series.check import Report, check_series, lint_series
from opencoti_build.series.git import Git, write_repository
from opencoti_build.series.outcome import PatchStatus
from opencoti_build.series.resolve import Stop
from opencoti_build.series.series import Series, load_series
from opencoti_build.ui import Ui
from tests.lib.series import PatchMaker, write_tree

T = TypeVar("T")


def synthetic(objects: Path, tree: str, folder: Path, count: int) -> None:
    """Write ``count`` patches: each edits three upstream sources and adds one file."""
    git = Git(objects)
    rows = [row.split("\t") for row in git.fields("ls-tree", "-r", "-l", "-z", tree)]
    paths = [
        path
        for head, path in rows
        if path.endswith((".cpp", ".h", ".cu", ".c"))
        and path.isascii()
        and int(head.split()[3]) > 8000
    ]
    maker = PatchMaker(objects, tree, folder)
    for step in range(count):
        edits: dict[str, bytes | None] = {f"src/opencoti/part-{step}.h": b"// new\n" * 200}
        for other in range(3):
            path = paths[(step * 7 + other * 131) % len(paths)]
            lines = maker.read(path).split(b"\n")
            middle = len(lines) // 4 + (step * 13) % (len(lines) // 2)
            lines.insert(middle, b'#include "opencoti/part-%d.h" // --kv-turbo' % step)
            edits[path] = b"\n".join(lines)
        maker.add(6 + step, f"synthetic-{step}", edits)


def moved_base(objects: Path, tree: str, folder: Path, index: Path) -> str:
    """The base with one more line on top of each file that the series touches."""
    git = Git(objects)
    edits: dict[str, bytes | None] = {}
    for patch in load_series(folder).patches:
        for file in patch.files:
            if not file.is_new:
                edits[file.path] = (
                    b"// moved\n" + git.run("cat-file", "blob", f"{tree}:{file.path}").out
                )
    return write_tree(objects, tree, edits, index)


class Table:
    """Rows of what was timed, with budgets in seconds."""

    def __init__(self) -> None:
        self.over = False
        print(f"{'step':28}{'seconds':>9}{'budget':>8}  result")

    def time(
        self, label: str, budget: float | None, call: Callable[[], T], say: Callable[[T], str]
    ) -> T:
        start = time.monotonic()
        result = call()
        spent = time.monotonic() - start
        self.over = self.over or (budget is not None and spent > budget)
        print(f"{label:28}{spent:9.2f}{budget or '':>8}  {say(result)}", flush=True)
        return result


def main() -> None:
    objects, tree = Path(sys.argv[1]).resolve(), sys.argv[2]
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 150
    ui = Ui(quiet=True)
    with tempfile.TemporaryDirectory(prefix="opencoti-bench-") as name:
        root = Path(name)
        folder = root / "patches"
        store = root / "store.git"
        write_repository(store, objects)  # what is made here does not go into OBJECTS
        synthetic(store, tree, folder, count)
        moved = moved_base(store, tree, folder, root / "index")

        def apply(series: Series, space: str) -> Callable[[], Applied]:
            return lambda: apply_series(series, tree, store, root / space, ui)

        def outcomes(statuses: Sequence[PatchStatus]) -> str:
            counts = Counter(status.outcome.value for status in statuses)
            return ", ".join(f"{number} {word}" for word, number in counts.items())

        def written(done: Done | Stop | None) -> str:
            if isinstance(done, Done):
                return f"{len(done.written)} patches written"
            return f"stopped: {done}"

        def findings(done: Report) -> str:
            counts = Counter(finding.rule.value for finding in done.findings)
            listed = ", ".join(f"{number} {word}" for word, number in counts.items())
            return f"{outcomes(done.statuses)}; {listed or 'no finding'}"

        def files(done: Applied) -> str:
            return f"{done.rewritten_files} files written"

        table = Table()
        series = table.time(
            "load", None, lambda: load_series(folder), lambda s: f"{len(s.patches)} patches"
        )
        table.time("check", 10, lambda: lint_series(series, tree, store, ui), findings)
        table.time("try alone", None, lambda: check_series(series, tree, store, ui), outcomes)
        table.time(
            "try on a moved base", 10, lambda: check_series(series, moved, store, ui), outcomes
        )
        table.time("first apply, no patch", None, apply(Series(folder, ()), "a"), files)
        table.time("all patches on it", None, apply(series, "a"), files)
        table.time("first apply, all patches", 20, apply(series, "b"), files)
        table.time("no-op apply", 0.5, apply(series, "b"), files)
        table.time("no-op apply again", 0.5, apply(series, "b"), files)
        table.time(
            "last patch dropped", None, apply(Series(folder, series.patches[:-1]), "b"), files
        )
        table.time("and back", None, apply(series, "b"), files)
        bench = Bench(root, tree, store, root / "b", ui)
        middle = series.patches[len(series.patches) // 2].number
        table.time("export, nothing new", None, lambda: editing.export(bench), written)
        table.time("open the middle patch", None, lambda: editing.edit(bench, middle), str)
        (root / "b/opencoti-new.h").write_text("// new\n")
        table.time("refresh it", None, lambda: editing.refresh(bench, None), written)
        table.time("undo", None, bench.undo, lambda entry: entry.command)
        (root / "b/opencoti-new.h").unlink()
        table.time("rebase", None, lambda: bench.start("rebase", moved, {}), written)
    if table.over:
        sys.exit("over budget")


if __name__ == "__main__":
    main()
