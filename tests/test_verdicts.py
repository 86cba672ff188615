"""The verdict of a lesson: all rows of its table are drawn, with their words, and nothing else."""

import math

import matplotlib as mpl
import pandas as pd
import pytest

from dmlkit import figures
from dmlkit.figures.finding import FILE, LIVE, here

mpl.use("Agg")
HEAD = "lesson,of,kind,label,effect,low,high,n,word,planned,stands,margin,unit,note\n"
POINTS = "points of Recall@1"


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "verdicts.csv"
    path.write_text(
        HEAD
        + f"07_toy,A gain,printed,CUB,2.5,,,its paper,,False,False,,{POINTS},\n"
        + f"07_toy,A gain,study,drawings,1.5,0.5,2.5,n = 12,holds here,True,True,1,{POINTS},\n"
        + f"07_toy,A gain,study,photographs,3,-1,7,n = 12,holds here,True,False,1,{POINTS},one\n"
        + f"07_toy,A loss,study,drawings,-80,-81,-79,n = 12,behind,False,False,1,{POINTS},\n"
        + "08_other,Spread,study,drawings,1,0,2,n = 2,open,True,False,1,degrees,\n"
    )
    return path


def texts(fig):
    return [text.get_text() for axes in fig.axes for text in axes.texts]


def footer(fig):
    return " ".join(text.get_text() for text in fig.texts)


def test_every_row_is_drawn_with_place_n_and_word(table):
    fig, numbers, *_ = figures.verdict("07_toy", file=table)
    assert {"A gain", "printed by its paper", "CUB +2.5", "drawings", "n = 12"} <= {*texts(fig)}
    assert {"+1.5  [0.5, 2.5]", "holds here", "exploratory: behind"} <= {*texts(fig)}
    assert numbers["A gain"]["drawings"]["low"] == 0.5
    assert numbers["A gain"]["CUB"]["low"] is None


def test_a_word_that_does_not_stand_has_no_color_and_says_so(table):
    fig, _, alt, _ = figures.verdict("07_toy", file=table)
    color = {t.get_text(): t.get_color() for axes in fig.axes for t in axes.texts}
    assert color["+1.5  [0.5, 2.5]"] == figures.RIGHT
    assert color["+3.0  [−1.0, 7.0]"] != figures.RIGHT
    assert "holds here; falls in the\ncorrection; one" in texts(fig)
    assert "photographs +3.0 (holds here; falls in the correction; one)" in alt


def test_the_footer_and_the_caption_say_only_what_is_drawn(table):
    fig, *_, caption = figures.verdict("07_toy", file=table)
    for said in ("Diamonds", "Hollow circles: exploratory, not planned", "Falls", "Colored"):
        assert said in footer(fig)
    assert "beside what papers print" in caption
    assert "this page" not in caption + footer(fig)
    fig, *_, caption = figures.verdict("09_new", {"Turns": {"this": [1.0, 2.0]}}, file=table)
    marks = "Lines: 95 % intervals. Small dots: single repetitions."
    assert footer(fig) == f"Gain in {POINTS}. {marks}"
    assert caption == "This page's run."


def test_a_far_effect_has_a_panel_of_its_own(table):
    rows = pd.read_csv(table)
    rows.loc[rows["of"] == "A loss", ["of", "label"]] = ["Another", "photographs"]
    again = rows[rows["of"] == "Another"].assign(label="drawings")
    pd.concat([rows, again]).to_csv(table, index=False)
    near, far = (axes.get_xlim() for axes in figures.verdict("07_toy", file=table)[0].axes)
    assert near[0] > -2
    assert far[0] < -81


def test_no_interval_of_a_study_is_cut_and_none_is_shrunk_by_this_page(table):
    fig, *_ = figures.verdict("07_toy", {"A gain": {"live": [-4.0, 4.0]}}, file=table)
    low, high = fig.axes[0].get_xlim()
    assert low < -4  # every training is seen, its interval of ± 51 is not
    assert 7 < high < 9
    fig, *_ = figures.verdict("07_toy", {"A gain": {"live": [-90.0, -80.0]}}, file=table)
    assert fig.axes[0].get_xlim()[0] > -2


def test_what_a_lesson_trained_stands_below_and_has_no_word(table):
    fig, numbers, *_ = figures.verdict("07_toy", {"A gain": {"this": [1.0, 2.0, 4.0]}}, file=table)
    assert {"+2.3  [−1.5, 6.1]", LIVE} <= {*texts(fig)}
    assert numbers["A gain"]["this"] == {"values": [1.0, 2.0, 4.0]}
    assert math.isnan(here("A gain", "once", [1.0]).low)


def test_a_lesson_without_evidence_has_its_own_run_alone(table):
    fig, *_ = figures.verdict("09_new", {"Turns": {"this": [1.0, 2.0]}}, "degrees", file=table)
    assert footer(fig).startswith("Gain in degrees")
    with pytest.raises(ValueError, match="nothing is known for '09_new'"):
        figures.verdict("09_new", file=table)


def test_two_units_are_refused(table):
    with pytest.raises(ValueError, match=f"these are degrees, {POINTS}"):
        figures.verdict("08_other", {"Recall": {"this": [1.0, 2.0]}}, file=table)


def test_the_kept_table_has_printed_sizes_and_all_intervals():
    frame = pd.read_csv(FILE)
    assert frame[frame["kind"] == "study"][["low", "high", "word"]].notna().all(axis=None)
    assert not frame.duplicated(["lesson", "of", "label"]).any()
    for lesson in frame["lesson"].unique():
        assert figures.verdict(lesson)[0].axes


def test_one_number_has_one_word_in_all_lessons():
    frame = pd.read_csv(FILE)
    frame = frame[frame["kind"] == "study"].round(4)
    words = frame.groupby(["label", "effect", "low", "high"])[["word", "planned"]].nunique()
    assert (words == 1).all(axis=None)
