"""The commands, through the real program, on a stand-in for the fetched base."""

from __future__ import annotations

import json

from tests.unit.series.conftest import Bench, Run


def test_list(bench: Bench, run: Run) -> None:
    bench.add_three()
    code, out, _ = run("list")
    assert code == 0 and len(out.splitlines()) == 4
    code, out, _ = run("list", "--json")
    rows = json.loads(out)
    assert [row["slug"] for row in rows] == ["params", "types", "kernels"]
    assert rows[2]["depends"] == [40]
    assert (rows[2]["upstream_lines"], rows[2]["own_lines"]) == (0, 1)
    assert rows[1]["class"] == "capacity"


def test_show(bench: Bench, run: Run) -> None:
    bench.add_three()
    code, out, _ = run("show", "0040")
    assert code == 0 and "Because Jürgen" in out and "src/new.c (new)" in out
    assert json.loads(run("show", "40", "--json")[1])["files"][0]["path"] == "a name.txt"
    code, _, err = run("show", "0041")
    assert code == 4 and "[patch-unknown]" in err


def test_check_apply_export(bench: Bench, run: Run) -> None:
    bench.add_three()
    code, out, _ = run("check", "--json", "--quiet")
    data = json.loads(out)
    assert [row["outcome"] for row in data["patches"]] == ["applied"] * 3
    assert (data["tree"], data["patches"][2]["own_lines"]) == (bench.maker.tree, 1)
    assert code == 1  # nothing registers the flag of their gate
    assert {row["rule"] for row in data["findings"]} >= {"gate-not-registered"}
    code, out, err = run("apply", "--json", "--quiet")
    data = json.loads(out)
    assert (code, err, data["tree"]) == (0, "", bench.maker.tree)
    assert data["workspace"].endswith("workspaces/llama.cpp")
    assert json.loads(run("apply", "--json", "-q")[1])["rewritten_files"] == 0
    assert json.loads(run("export", "--json")[1])["written"] == []
    code, out, _ = run("apply", "--workspace", str(bench.root / "mine"))
    assert code == 0 and "3 patches" in out and bench.maker.tree in out


def test_failing_check_prints_all_and_exits_4(bench: Bench, run: Run) -> None:
    bench.add_three()
    (bench.patches / "0040-types.patch").unlink()
    third = bench.patches / "0120-kernels.patch"
    third.write_bytes(third.read_bytes().replace(b": 0040", b":"))
    code, out, err = run("check")
    assert code == 4
    assert "0020-params" in out and "does-not-apply" in out
    assert "[series-does-not-apply]" in err and "src/new.c" in err and "Traceback" not in err


def test_invalid_series_names_every_problem(bench: Bench, run: Run) -> None:
    (bench.patches / "x.patch").write_text("x\n")
    (bench.patches / "0040-y.patch").write_text("y\n")
    code, _, err = run("apply")
    assert code == 4 and "patch-bad-name" in err and "patch-malformed" in err


def test_export_without_workspace(run: Run) -> None:
    code, _, err = run("export")
    assert code == 4 and "[workspace-missing]" in err
