"""The check: which numbers may move, by how much, and what it says of those that may not."""

import copy
import hashlib
import io
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image

from benchmarks import check_power
from course import check, integrity
from dmlkit import claims, figures, records


def made(numbers: dict[str, Any], **other: Any) -> dict[str, Any]:
    provenance = {"notebook": "00_x", "profile": "ci", "seeds": 3, "parameters": {}}
    words = {"alt": "A line.", "caption": "It rises.", "numbers": numbers}
    return {"toy": words | {"provenance": provenance | {"numerics": "avx2"}} | other}


def failures(old: dict, new: dict) -> list[str]:
    return check.compare(made(old), made(new)).failures


def sample(shift: float = 0.0, seed: int = 0, shape: tuple[int, ...] = (5, 40)) -> dict:
    values = np.random.default_rng(seed).normal(0.8, 0.01, shape)
    return figures.sample(values + shift)


@pytest.mark.parametrize(
    "old, new, lines",
    [
        ({"r": 0.8}, {"r": 0.8000079}, []),
        ({"r": 0.8}, {"r": 0.80001}, ["r: committed 0.8, now 0.80001"]),
        ({"r": 0}, {"r": 1e-9}, []),
        ({"r": 0}, {"r": 2e-9}, ["r: committed 0, now 2e-09"]),
        ({"a": [1, 2]}, {"a": [1]}, ["a/1: committed 2, but missing now"]),
        ({"a": 1}, {"a": 1, "b": 2}, ["b: 2 now, but not committed"]),
        ({"a": "x"}, {"a": "y"}, ["a: committed 'x', now 'y'"]),
        ({"a": 1}, {"a": None}, ["a: committed 1, now None"]),
        ({"a": True}, {"a": 1}, ["a: committed True, now 1"]),
        ({"a": 1}, {"a": {"timing": 1}}, ["a: .*a timing instead of a plain"]),
        ({"t": {"timing": 0.02}}, {"t": {"timing": 0.19}}, []),
        ({"t": {"timing": [0.02]}}, {"t": {"timing": [0.21]}}, ["t/0: .*another order of magni"]),
        ({"t": {"timing": 1e-7}}, {"t": {"timing": 1e-3}}, []),
        ({"t": {"timing": [1]}}, {"t": {"timing": [1, 2]}}, ["t: .*timings of another shape"]),
        ({"e": {"example": [3, "x"]}}, {"e": {"example": [9, "y"]}}, []),
        ({"e": {"example": [3]}}, {"e": {"example": ["x"]}}, ["e: .*an example of another shape"]),
        ({"e": {"example": 3}}, {}, ["e: committed .*but missing now"]),
        ({"s": {"values": [0.532]}}, {"s": {"values": [0.01]}}, ["s/values/0: committed 0.532"]),
        (
            {"s": sample(shape=(5, 3))},
            {"s": sample(shape=(5, 4))},
            [r"s: committed random numbers of shape \(5, 3\), now \(5, 4\)"],
        ),
        (
            {"s": sample() | {"x": [10]}},
            {"s": sample() | {"x": [20]}},
            ["s/x/0: committed 10, now 20"],
        ),
    ],
)
def test_each_kind_of_number_is_compared_in_its_way(old: dict, new: dict, lines: list) -> None:
    found = failures(old, new)
    assert len(found) == len(lines), found
    for line, pattern in zip(found, lines, strict=True):
        assert re.match(f"toy: {pattern}", line)


def test_another_draw_of_the_same_distribution_passes_and_a_shift_does_not() -> None:
    old = {"s": sample(seed=0)}
    assert failures(old, {"s": sample(seed=1)}) == []
    found = failures(old, {"s": sample(0.05, seed=1)})
    assert any(
        re.search(r"number 7: committed 0\.\d+, now 0\.\d+: by chance once", f) for f in found
    )
    assert any("its 40 numbers have moved together" in line for line in found)


def test_one_number_that_moves_far_is_named_alone() -> None:
    new = sample(seed=1)
    for row in new["values"]:
        row[3] += 0.2
    found = failures({"s": sample(seed=0)}, {"s": new})
    assert [line.split(":")[1] for line in found] == [" s, number 3"]


def test_values_that_are_constant_or_counted_are_fine_unless_they_move_far() -> None:
    def counts(*rows: int) -> dict:
        return {"s": figures.sample([[row, 5] for row in rows])}

    assert failures(counts(14, 14, 14), counts(15, 15, 15)) == []
    assert failures(counts(14, 14, 14), counts(14, 14, 15)) == []
    ones = {"s": figures.sample([[1.0, 0.5]] * 3)}
    assert failures(ones, {"s": figures.sample([[1.000005, 0.5]] * 3)}) == []  # rounding
    assert failures(ones, {"s": figures.sample([[0.9, 0.5]] * 3)}) != []


def test_what_is_said_beside_a_figure_has_to_be_what_was_made() -> None:
    old = made({"n": 1})
    for part, value in (("alt", "Another."), ("caption", "")):
        assert (
            f"toy: {part}: committed"
            in check.compare(old, made({"n": 1}, **{part: value})).failures[0]
        )
    forged = copy.deepcopy(old)
    forged["toy"]["provenance"]["seeds"] = 30
    assert check.compare(forged, old).failures == ["toy: provenance/seeds: committed 30, now 3"]
    assert check.compare(old, {}).failures == ["toy: committed, but not made"]
    assert check.compare({}, old).failures == ["toy: made, but not committed"]


def test_a_mean_that_its_values_do_not_give_is_named() -> None:
    true = figures.sample([0.5, 0.7], mean=0.6, n=2)
    assert failures({"s": true}, {"s": true}) == []
    assert failures({"s": true | {"mean": 0.9}}, {"s": true}) == [
        "toy: s/mean is 0.9, but its values give 0.6 (committed)"
    ]


def claim(*values: float, name: str = "C18", **change: Any) -> dict[str, Any]:
    return {"claims": [claims.settle(name, values).facts() | change]}


def test_a_verdict_fails_where_it_turns_and_is_named_where_it_changes_otherwise() -> None:
    up, down, open_, none = (
        claim(0.2, 0.3, 0.25),
        claim(-0.2, -0.3, -0.25),
        claim(0.2, -0.3, 0.2),
        claim(0.001, 0.002, -0.001),
    )
    found = check.compare(made(up), made(down))
    assert any("C18  has turned from reproduced to contradicted" in line for line in found.failures)
    words = {"undecided": open_, "no effect": none}
    for word, other in words.items():
        for old, new in ((up, other), (other, up)):
            found = check.compare(made(old), made(new))
            assert not [line for line in found.failures if "turned" in line]
            assert any("C18 : committed" in note and word in note for note in found.notes)


def test_a_verdict_in_former_words_is_the_same_verdict() -> None:
    old, new = claim(0.2, -0.3, 0.2, verdict="inconclusive"), claim(0.2, -0.3, 0.2)
    found = check.compare(made(old), made(new))
    assert found.failures == []
    assert not [note for note in found.notes if "C18" in note]


def test_a_verdict_that_a_clock_decides_is_only_named() -> None:
    up, down = (
        {"claims": [claims.settle("C20", sign * np.arange(2.0, 7.0), timed=True).facts()]}
        for sign in (1, -1)
    )
    found = check.compare(made(up), made(down))
    assert found.failures == []
    assert any("C20 : committed reproduced, now contradicted" in note for note in found.notes)


def test_an_identity_has_to_stay_within_its_margin_and_need_not_round_alike() -> None:
    assert failures(claim(1e-15, name="B2"), claim(3e-15, name="B2")) == []
    assert failures(claim(1e-15, name="B2"), claim(0.5, name="B2")) != []


def test_the_effect_of_a_claim_follows_from_its_values_or_is_judged_by_its_interval() -> None:
    true = claim(0.02, 0.03, 0.025)
    assert any("effect is 0.5" in f for f in failures(claim(0.02, 0.03, 0.025, effect=0.5), true))
    kept = [
        claims.record("C18", x, (x - 0.001, x + 0.001), n=6).facts() for x in (0.02, 0.021, 0.4)
    ]
    assert failures({"claims": kept[:1]}, {"claims": kept[1:2]}) == []
    assert any("by chance once" in f for f in failures({"claims": kept[:1]}, {"claims": kept[2:]}))


def test_the_note_tells_how_many_numbers_are_equal_and_by_which_numerics() -> None:
    old, new = made({"s": sample(seed=0)}), made({"s": sample(seed=0)})
    new["toy"]["numbers"]["s"]["values"][0][0] += 0.001
    new["toy"]["provenance"]["numerics"] = "default/SSE41"
    note = "199 of 200 random numbers are equal to the last digit; numerics: default/SSE41 here, "
    note += "avx2 committed"
    assert check.compare(old, new).notes == [note]
    new["toy"]["provenance"]["numerics"] = "avx2"
    assert "threads, code" in check.compare(old, new).notes[0]


def test_more_tests_in_the_course_ask_for_more_of_each() -> None:
    course = made({"s": sample()}) | {"other": made({"s": sample(shape=(5, 400))})["toy"]}
    few, many = check.levels(made({"s": sample()})), check.levels(course)
    assert many.column == pytest.approx(few.column / 11)
    assert many.score == pytest.approx(few.score / 2)
    assert few.column * 40 + few.score * 2 <= check.RATE


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.95])
@pytest.mark.parametrize("R", [3, 5])
def test_no_score_is_small_more_often_than_it_says_whatever_the_correlation(
    R: int, rho: float
) -> None:
    """Exact p-values are uniform; 1,000 draws give 50 ± 6.9 below 5 %."""
    rng = np.random.default_rng(R)
    small = np.zeros(2)
    for _ in range(1000):
        old, new = (check_power.draw(rng, R, [12], rho)["0"] for _ in range(2))
        small += np.array(check.score_odds(old, new)) < 0.05
    assert (small < 50 + 4 * 6.9).all()
    assert (small > 50 - 4 * 6.9).all()


def test_false_alarms_are_rare_and_a_shifted_figure_is_seen() -> None:
    """benchmarks/check_power.py does so with many more draws."""
    assert check_power.false_alarms(20, figures=12) == 0
    assert check_power.power(6, 30, 0.0, 3, draws=40) > 0.85
    assert check_power.power(4, 30, 0.0, 5, draws=40) > 0.85
    assert check_power.power(3, 30, 0.0, 10, draws=40) > 0.85


def test_numbers_that_are_infinite_or_cannot_be_read_are_named() -> None:
    true = made({"r": 0.5, "s": sample(), "t": {"timing": 0.1}})
    for key, value, line in (
        ("r", math.inf, "numbers/r is inf"),
        ("r", math.nan, "numbers/r is nan"),
        ("t", {"timing": math.nan}, "numbers/t/timing is nan"),
        ("s", {"values": [1.0, math.inf]}, "numbers/s/values/1 is inf"),
        ("s", {"values": [[1.0], [2.0, 3.0]]}, "its random numbers cannot be read"),
        ("c", {"claim": "C18", "verdict": "reproduced"}, "its random numbers cannot be read"),
    ):
        forged = copy.deepcopy(true)
        forged["toy"]["numbers"][key] = value
        committed = check.compare(forged, true)
        assert [f.startswith(f"toy: {line}") for f in committed.failures] == [True]
        assert committed.failures[0].endswith("(committed)")
        assert check.compare(true, forged).failures[0].endswith("(now)")
    del forged["toy"]["alt"]
    assert check.compare(forged, true).failures == [
        "toy: it has no 'alt', or no str there (committed)"
    ]


HEIGHTS = {"triplet": 0.8, "margin": 0.6}


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Saves a figure of two bars into a folder, and gives the record of what is there."""
    mpl.use("Agg")
    monkeypatch.setattr(figures, "provenance", None)

    def save(
        folder: str = "figures",
        heights: dict[str, float] = HEIGHTS,
        labels: tuple[str, ...] = (),
        chance: bool = False,
    ) -> dict[str, Any]:
        monkeypatch.setenv("DMLKIT_FIGURES", str(tmp_path / folder))
        fig, axes = plt.subplots(figsize=(2, 1))
        axes.bar(labels or list(heights), heights.values())
        axes.plot(list(heights.values()), color="black")  # its edge has shades
        numbers: dict[str, Any] = {"recall": HEIGHTS}
        if chance:
            numbers |= {"s": figures.sample([0.5, 0.75]), "e": figures.example(3)}
        figures.save(fig, "toy", numbers, "Two bars.", "Taller is better.")
        return {"toy": json.loads((tmp_path / folder / "toy.json").read_text("utf-8"))}

    with mpl.rc_context():
        figures.begin_notebook("00_toy", profile="ci", seeds=3, device="cpu")
        yield save
    plt.close("all")


def test_a_picture_of_other_data_or_with_swapped_labels_is_another_one(
    published: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    old = published()
    fresh = {"toy": tmp_path / "new" / "toy.png"}
    assert integrity.verify(old, published("new"), tmp_path / "figures", fresh).failures == []
    others: tuple[dict[str, Any], ...] = (
        {"heights": {"triplet": 0.81, "margin": 0.6}},
        {"labels": ("margin", "triplet")},
    )
    for other in others:
        new = published("new", **other)
        assert check.compare(old, new).failures == []  # by numbers they are equal
        found = integrity.verify(old, new, tmp_path / "figures", fresh)
        assert [line.split(",")[0] for line in found.failures] == [
            "toy: another picture is drawn now"
        ]
        new["toy"]["picture"]["freetype"] = "1.0"  # which draws other edges
        found = integrity.verify(old, new, tmp_path / "figures", fresh)
        assert found.failures == []
        assert found.notes[0].startswith("1 of 1 pictures cannot be compared")


def test_last_bits_may_shade_a_picture_and_move_what_chance_draws(
    published: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    fresh = {"toy": tmp_path / "new" / "toy.png"}
    old = published()
    new = published("new", heights={"triplet": 0.8, "margin": 0.6 + 2e-4})
    assert old["toy"]["picture"] != new["toy"]["picture"]
    assert integrity.verify(old, new, tmp_path / "figures", fresh).failures == []
    old, new = published(chance=True), published("new", heights={"margin": 0.9}, chance=True)
    found = integrity.verify(old, new, tmp_path / "figures", fresh)
    assert found.failures == []
    assert "toy: another picture is drawn now" in found.notes[0]


@pytest.mark.parametrize(("specks", "same"), [(integrity.SPECKS, True), (20, False)])
def test_an_edge_may_be_snapped_to_another_pixel_here_and_there(
    published: Callable[..., dict[str, Any]], tmp_path: Path, specks: int, same: bool
) -> None:
    old, new = published(), published("new")
    png = tmp_path / "new" / "toy.png"
    with Image.open(png) as image:
        image.load()
    for x in range(specks):
        image.putpixel((x, 0), (1, 2, 3, 255))
    image.save(png)
    new["toy"]["picture"]["pixels"] = records.pixels(png.read_bytes())
    found = integrity.verify(old, new, tmp_path / "figures", {"toy": png})
    assert (found.failures == []) is same


def test_another_png_or_none_is_named_and_another_packing_is_not(
    published: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    old = published()
    png = tmp_path / "figures" / "toy.png"
    with Image.open(png) as image:
        image.load()
    packed = io.BytesIO()
    image.save(packed, format="PNG", compress_level=0)
    assert packed.getvalue() != png.read_bytes()
    retouched = image.copy()
    retouched.putpixel((0, 0), (1, 2, 3, 255))
    changed = io.BytesIO()
    retouched.save(changed, format="PNG")
    for content, line in (
        (packed.getvalue(), None),
        (changed.getvalue(), "toy.png is not the picture that was made with its record"),
        (b"GIF89a", "toy.png cannot be compared: no PNG that can be read"),
        (png.read_bytes()[:200], "toy.png cannot be compared: no PNG that can be read"),
        (None, "toy.png is missing"),
    ):
        png.write_bytes(content) if content is not None else png.unlink()
        found = integrity.verify(old, old, png.parent, {"toy": png}).failures
        assert len(found) == (line is not None)
        assert all(line in each for each in found)


def test_another_film_none_or_one_too_many_is_named(tmp_path: Path) -> None:
    film = tmp_path / "toy.gif"
    record = {"film": hashlib.sha256(b"frames").hexdigest(), "alt": "", "caption": ""}
    record |= {"numbers": {}, "provenance": {}}
    (tmp_path / "toy.png").touch()
    no_film = {key: value for key, value in record.items() if key != "film"}
    for content, kept, lines in (
        (b"frames", record, []),
        (
            b"others",
            record,
            ["the committed toy.gif is not the film that was made with its record"],
        ),
        (None, record, ["the committed toy.gif is missing"]),
        (b"frames", no_film, ["its record knows nothing of the committed toy.gif"]),
    ):
        film.write_bytes(content) if content is not None else film.unlink()
        found = integrity.verify({"toy": kept}, {}, tmp_path, {}).failures
        assert found == [f"toy: {line}" for line in lines]


@pytest.mark.parametrize(
    "part, value",
    [
        ("alt", "Three bars."),
        ("caption", "Smaller is better."),
        ("numbers/s/values/0", 0.51),  # as another draw might give it
        ("numbers/e/example", 4),
        ("numbers/recall/margin", 0.600001),  # within the tolerance
        ("provenance/device", "cuda"),
        ("provenance/versions/torch", "9.9"),
        ("provenance/numerics", "abacus"),
        ("picture/freetype", "1.0"),
    ],
)
def test_whatever_is_forged_in_a_record_is_seen(
    published: Callable[..., dict[str, Any]], tmp_path: Path, part: str, value: Any
) -> None:
    true = published(chance=True)
    forged = copy.deepcopy(true)
    *path, last = part.split("/")
    place = forged["toy"]
    for key in path:
        place = place[key]
    place[int(last) if isinstance(place, list) else last] = value
    fresh = {"toy": tmp_path / "figures" / "toy.png"}
    found = integrity.verify(forged, true, tmp_path / "figures", fresh).failures
    assert "toy: its record was changed after it was made" in found


def test_what_was_made_before_there_were_hashes_is_told_once_and_other_libraries_are_named(
    published: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    new = published()
    old = copy.deepcopy(new)
    del old["toy"]["picture"], old["toy"]["digest"]
    old["toy"]["provenance"]["versions"]["torch"] = "2.1"
    found = integrity.verify(old, new, tmp_path / "figures", {})
    assert found.failures == []
    assert [note.split(",")[0] for note in found.notes[:1]] == ["no hash yet: 1 figures"]
    torch = new["toy"]["provenance"]["versions"]["torch"]
    assert found.notes[1:] == [f"provenance/versions/torch: committed 2.1, now {torch} (1 figures)"]


def test_the_digest_is_of_all_that_a_record_holds(published: Callable[..., dict[str, Any]]) -> None:
    record = published()["toy"]
    assert record["digest"] == records.digest(record)
    assert record["picture"].keys() == {"pixels", "matplotlib", "freetype", "pillow"}
