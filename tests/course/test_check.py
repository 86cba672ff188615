"""The check: which numbers may move, by how much, and what it says of those that may not."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import check_power
from course import check
from dmlkit import figures
from studies import claims


def made(numbers: dict[str, Any], numerics: str = "avx2", **other: Any) -> dict[str, Any]:
    provenance = {"notebook": "00_x", "profile": "ci", "seeds": 3, "numerics": numerics}
    words = {"alt": "A line.", "caption": "It rises.", "numbers": numbers}
    return {"toy": words | {"provenance": provenance} | other}


def failures(old: dict, new: dict) -> list[str]:
    return check.compare(made(old), made(new))[0]


def sample(shift: float = 0.0, seed: int = 0, shape: tuple[int, ...] = (5, 40)) -> dict:
    values = np.random.default_rng(seed).normal(0.8, 0.01, shape)
    return figures.sample(values + shift)


def claim(*values: float, name: str = "C18", **how: Any) -> dict[str, Any]:
    many = len(values) > 1
    row = claims.row(name, "from scratch", values, **how) if many else claims.counted(name, *values)
    return {"claims": [row.facts()]}


@pytest.mark.parametrize(
    "old, new, lines",
    [
        ({"r": 0.8}, {"r": 0.8000079}, []),
        ({"r": 0.8}, {"r": 0.80001}, ["r: committed 0.8, now 0.80001"]),
        ({"r": 0}, {"r": 1e-9}, []),
        ({"r": 0}, {"r": 2e-9}, ["r: committed 0, now 2e-09"]),
        ({"a": [1, 2]}, {"a": [1]}, ["a/1: committed, but not made"]),
        ({"a": 1}, {"a": 1, "b": 2}, ["b: not committed"]),
        ({"a": "x"}, {"a": "y"}, ["a: committed 'x', now 'y'"]),
        ({"a": 1}, {"a": None}, ["a: committed 1, now None"]),
        ({"a": True}, {"a": 1}, ["a: committed True, now 1"]),
        ({"a": 1}, {"a": {"timing": 1}}, ["a: committed, but", "a/timing: not committed"]),
        ({"t": {"timing": 0.02}}, {"t": {"timing": 20}}, []),
        ({"e": {"example": [3, 4]}}, {"e": {"example": [9, 4]}}, []),
        ({"e": {"example": 3}}, {}, ["e/example: committed, but not made"]),
        ({"s": sample() | {"x": 10}}, {"s": sample() | {"x": 20}}, ["s/x: committed 10, now 20"]),
        (claim(0.2, 0.3), claim(0.2, 0.3, measure="another"), ["claims/0/measure: "]),
        (claim(1e-15, name="B2"), claim(3e-15, name="B2"), []),
        (claim(1, 2, 3, timed=True), claim(-1, -2, -3, timed=True), []),
    ],
)
def test_each_kind_of_number_is_compared_in_its_way(old: dict, new: dict, lines: list) -> None:
    found = failures(old, new)
    assert len(found) == len(lines), found
    for line, pattern in zip(found, lines, strict=True):
        assert re.match(f"toy: {pattern}", line)


def test_another_draw_of_the_same_distribution_passes_and_a_shift_does_not() -> None:
    old = {"s": sample(seed=0)}
    wrong, notes = check.compare(made(old), made({"s": sample(1e-7)}))
    assert (wrong, notes) == ([], ["200 of 200 random numbers are those committed"])
    wrong, notes = check.compare(made(old), made({"s": sample(seed=1)}))
    assert (wrong, notes) == ([], ["0 of 200 random numbers are those committed"])
    found = failures(old, {"s": sample(0.1, seed=1)})
    assert any(re.search(r"s, number 7: committed 0\.\d+, now 0\.\d+: by chance", f) for f in found)
    assert any("its 40 numbers have moved: by chance once" in line for line in found)


def test_a_figure_that_was_not_made_is_counted_and_no_drift() -> None:
    here, absent = made({"n": 5}), made({"n": 5})
    absent["toy"]["provenance"]["made"] = False
    wrong, notes = check.compare(here, absent)
    assert wrong == []
    assert notes[0] == "not made, as their pictures are not here: 1 of 1 figures (toy)"
    assert check.compare(here, {})[0] == ["toy: committed, but not made"]


def test_one_number_that_moves_far_is_named_alone() -> None:
    new = sample(seed=1)
    for row in new["values"]:
        row[3] += 0.2
    (line,) = failures({"s": sample(seed=0)}, {"s": new})
    assert line.startswith("toy: s, number 3: ")


def test_values_that_are_counted_or_constant_are_fine() -> None:
    def counts(*rows: int) -> dict:
        return {"s": figures.sample([[row, 5] for row in rows])}

    assert failures(counts(14, 14, 14), counts(15, 15, 15)) == []
    assert failures(counts(14, 14, 14), counts(14, 14, 15)) == []
    assert failures(counts(14, 15, 13), counts(914, 915, 913)) != []


def test_of_what_is_said_only_the_effect_of_a_pages_own_run_is_random() -> None:
    def said(text: str) -> dict:
        return made({"n": 1}, alt=text)

    live, study = "vote +1.0 (this page's run).", "vote +1.0 (ahead)."
    for other in ("−0.3", "0.0"):  # a zero has no sign
        assert check.compare(said(live), said(live.replace("+1.0", other)))[0] == []
    assert len(check.compare(said(study), said(study.replace("+1.0", "−0.3")))[0]) == 1


def test_what_is_said_beside_a_figure_has_to_be_what_was_made() -> None:
    old = made({"n": 1})
    for part, value in (("alt", "Another."), ("caption", "")):
        (line,) = check.compare(old, made({"n": 1}, **{part: value}))[0]
        assert line.startswith(f"toy: {part}: committed")
    other = old["toy"]["provenance"] | {"seeds": 30}
    assert check.compare(made({"n": 1}, provenance=other), old)[0] == [
        "toy: seeds: committed 30, now 3"
    ]
    assert check.compare(old, {})[0] == ["toy: committed, but not made"]
    assert check.compare({}, old)[0] == ["toy: made, but not committed"]


def test_a_word_fails_where_it_turns_and_is_named_where_it_changes_otherwise() -> None:
    gains = (0.2, 0.3, 0.25, 0.22, 0.28)
    up, down = claim(*gains), claim(*(-gain for gain in gains))
    between = claim(0.1, 0.9, -0.6, 0.3, -0.2)
    turned = "toy: claims/0/word: committed 'holds here', now 'reversed here'"
    assert turned in failures(up, down)
    for old, new in ((up, between), (between, up)):
        wrong, notes = check.compare(made(old), made(new))
        assert not any("word" in line for line in wrong)
        assert any("word: committed" in line for line in notes)


def test_what_a_clock_judges_is_only_named() -> None:
    up, down = (
        claim(2, 3, 4, 5, name="C20", timed=True),
        claim(-2, -3, -4, -5, name="C20", timed=True),
    )
    wrong, notes = check.compare(made(up), made(down))
    assert wrong == []
    assert any(line.startswith("toy: claims/0/effect: committed 3.5") for line in notes)
    wrong, notes = check.compare(made({"t": {"timing": 0.02}}), made({"t": {"timing": 0.21}}))
    assert (wrong, notes[0]) == ([], "toy: t/timing: committed 0.02, now 0.21")


def test_other_surroundings_are_named_once() -> None:
    notes = check.compare(made({"n": 1}), made({"n": 1}, "default/SSE41"))[1]
    assert notes[0] == "numerics: committed 'avx2', now 'default/SSE41' (1 figures)"


def test_more_tests_in_the_course_ask_for_more_of_each() -> None:
    course = made({"s": sample()}) | {"other": made({"s": sample(shape=(5, 400))})["toy"]}
    few, many = check.levels(made({"s": sample()})), check.levels(course)
    assert many == pytest.approx((few[0] / 11, few[1] / 2))
    assert few[0] * 40 + few[1] <= check.RATE


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.95])
@pytest.mark.parametrize("R", [3, 5])
def test_no_score_is_small_more_often_than_it_says_whatever_the_correlation(
    R: int, rho: float
) -> None:
    """Exact p-values are uniform; 1,000 draws give 50 ± 6.9 below 5 %."""
    rng = np.random.default_rng(R)
    scores = [
        check.odds(*(check_power.draw(rng, R, 12, rho) for _ in "ab"))[1] for _ in range(1000)
    ]
    assert abs(sum(score < 0.05 for score in scores) - 50) < 4 * 6.9


def test_false_alarms_are_rare_and_a_shifted_figure_is_seen() -> None:
    """benchmarks/check_power.py does so with many more draws."""
    assert check_power.false_alarms(20) == 0
    assert check_power.power(R=6, rho=0.0, shift=3) > 0.85
    assert check_power.power(R=4, rho=0.5, shift=5) > 0.85
    assert check_power.power(R=3, rho=0.5, shift=10) > 0.85


def test_a_picture_that_is_missing_or_another_is_named(tmp_path: Path) -> None:
    old = made({"n": 1})
    (missing,) = check.pictures(old, {"toy": b"a picture"}, tmp_path)
    assert missing == "toy: the committed toy.png is missing"
    (tmp_path / "toy.png").write_bytes(b"a picture")
    assert list(check.pictures(old, {"toy": b"a picture"}, tmp_path)) == []
    (other,) = check.pictures(old, {"toy": b"another"}, tmp_path)
    assert other == "toy: the committed toy.png is not the picture that its notebook keeps"
