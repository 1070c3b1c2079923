"""Pairs, statistics, generated tasks, KV sizes: what the gates compute with."""

from __future__ import annotations

import itertools
import random

import pytest

from opencoti_build.gates.checks.retrieval import GATE as RETRIEVAL
from opencoti_build.gates.checks.size import CacheLine, read_caches, read_widths
from opencoti_build.gates.checks.size import judge as judge_size
from opencoti_build.gates.checks.speed import judge
from opencoti_build.gates.gate import Options, Verdict
from opencoti_build.gates.pairs import all_pairs, product
from opencoti_build.gates.retrieval_tasks import Task, is_right, needle, passkey
from opencoti_build.gates.speed_run import Speed, decide
from opencoti_build.gates.stats import paired_ratio
from opencoti_build.gates.texts import prose

FACTORS = {"a": ("1", "2", "3"), "b": ("x", "y"), "c": ("p", "q", "r"), "d": ("u", "v")}


def test_every_pair_of_values_occurs_and_few_rows_do() -> None:
    rows = all_pairs(FACTORS)
    for one, two in itertools.combinations(FACTORS, 2):
        seen = {(row[one], row[two]) for row in rows}
        assert seen == set(itertools.product(FACTORS[one], FACTORS[two]))
    assert len(rows) < len(product(FACTORS)) / 2
    assert all_pairs(FACTORS) == rows


def _pairs(
    true_ratio: float, noise: float, count: int = 60, seed: int = 5
) -> list[tuple[float, float]]:
    rng = random.Random(seed)
    pairs = []
    for _ in range(count):
        # What disturbs the machine for long disturbs both of a pair.
        common = rng.uniform(1, 5)
        first = common * rng.gauss(1, noise)
        pairs.append((first, common / true_ratio * rng.gauss(1, noise)))
    return pairs


def test_a_slow_down_of_five_percent_is_seen_and_none_is_not_made_up() -> None:
    assert decide(paired_ratio(_pairs(0.95, 0.01)), 0.99) is False
    assert decide(paired_ratio(_pairs(1.0, 0.01)), 0.99) is True


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    found = [paired_ratio(_pairs(0.97, 0.02, 30, seed)) for seed in range(20)]
    assert sum(ratio.low <= 0.97 <= ratio.high for ratio in found) >= 18


def test_too_much_noise_decides_nothing() -> None:
    noisy = [paired_ratio(_pairs(0.99, 0.2, 30, seed)) for seed in range(20)]
    assert sum(decide(ratio, 0.99) is None for ratio in noisy) >= 17
    assert all(ratio.half_width > 0.01 for ratio in noisy)


def test_cpu_time_helps_where_the_clock_is_noisy_and_never_overrules_it() -> None:
    noisy = paired_ratio(_pairs(0.99, 0.2, 30))
    good, bad = paired_ratio(_pairs(1.0, 0.01)), paired_ratio(_pairs(0.95, 0.01))
    told = {
        (wall, cpu, threads): judge(Speed(wall, cpu, 1.0), threads)[0]
        for wall in (noisy, good, bad)
        for cpu in (noisy, good, bad)
        for threads in (1, 2)
    }
    assert told[noisy, good, 1] is True and told[noisy, bad, 1] is False
    assert told[noisy, good, 2] is None and told[noisy, bad, 2] is None
    assert told[good, bad, 1] is True and told[bad, noisy, 1] is False
    assert told[bad, good, 1] is None and told[bad, good, 2] is False
    assert judge(Speed(noisy, None, 1.0), 1)[0] is None


def test_the_same_data_give_the_same_interval() -> None:
    assert paired_ratio(_pairs(1.0, 0.05)) == paired_ratio(_pairs(1.0, 0.05))


@pytest.mark.parametrize("make", [passkey, needle])
@pytest.mark.parametrize("depth", [0.0, 0.5, 1.0])
def test_a_task_holds_its_answer_once_in_the_right_place(make: object, depth: float) -> None:
    assert callable(make)
    task: Task = make(3, 4000, depth)
    assert make(3, 4000, depth) == task
    assert make(4, 4000, depth) != task
    assert 3500 < len(task.prompt) < 4800
    place = task.prompt.index(task.answer) / len(task.prompt)
    assert abs(place - depth) < 0.12
    assert not task.prompt.endswith(task.answer)
    assert is_right(task, f" {task.answer}. And")
    assert not is_right(task, f" {task.answer}7")
    assert not is_right(task, " something else")
    assert not is_right(task, "")


def test_full_retrieval_has_more_and_longer_cases() -> None:
    some, all_ = (len(RETRIEVAL.cases(Options(full=full))) for full in (False, True))
    assert some < all_


def test_prose_depends_on_the_seed_alone() -> None:
    assert prose(1, 20) == prose(1, 20)
    assert prose(1, 20) != prose(2, 20)
    assert prose(1, 20).isascii()


LOG = """\
0.04.5 I print_info: n_embd_k_gqa          = 256
0.04.5 I print_info: n_embd_v_gqa          = 128
0.05.0 I llama_kv_cache:        CPU KV buffer size =     4.88 MiB
0.05.0 I llama_kv_cache: size =    4.88 MiB (  4096 cells,   3 layers,  1/1 seqs), K (q8_0):    3.19 MiB, V (q4_0):    0.84 MiB
"""  # noqa: E501


def test_a_cache_that_costs_what_the_table_says() -> None:
    caches, widths = read_caches(LOG), read_widths(LOG)
    assert widths == (256, 128)
    found = judge_size(caches, widths, ("q8_0", "q4_0"))
    assert found.verdict is Verdict.PASS
    assert found.value == pytest.approx(3 * (256 * 34 + 128 * 18) / 32, rel=0.01)


def test_a_cache_of_another_type_or_size_is_found() -> None:
    (cache,), widths = read_caches(LOG), read_widths(LOG)
    assert judge_size([cache], widths, ("q8_0", "q8_0")).verdict is Verdict.FAIL
    assert judge_size([], widths, ("q8_0", "q4_0")).verdict is Verdict.FAIL
    larger = CacheLine(cache.cells, cache.layers, cache.types, (cache.sizes[0] * 1.01, 0.84))
    assert judge_size([larger], widths, ("q8_0", "q4_0")).verdict is Verdict.FAIL
