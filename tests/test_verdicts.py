"""The verdict of a lesson: all rows of its table are drawn, with their words, and nothing else."""

import math

import matplotlib as mpl
import pandas as pd
import pytest

from dmlkit import figures
from dmlkit.figures.verdicts import FILE, LIVE, here

mpl.use("Agg")
HEAD = "lesson,of,kind,label,effect,low,high,n,word,stands,margin,unit\n"
POINTS = "points of Recall@1"


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "verdicts.csv"
    path.write_text(
        HEAD
        + f"07_toy,A gain,printed,CUB,2.5,,,its paper,,False,,{POINTS}\n"
        + f"07_toy,A gain,study,drawings,1.5,0.5,2.5,n = 12,holds here,True,1,{POINTS}\n"
        + f"07_toy,A gain,study,photographs,3,-1,7,n = 12,holds here,False,1,{POINTS}\n"
        + "08_other,Spread,study,drawings,1,0,2,n = 2,open,False,1,degrees\n"
    )
    return path


def texts(fig):
    return [text.get_text() for text in fig.axes[0].texts]


def test_every_row_is_drawn_with_place_n_and_word(table):
    fig, numbers, *_ = figures.verdict("07_toy", file=table)
    assert {"A gain", "printed by its paper", "CUB +2.5", "drawings, n = 12"} <= {*texts(fig)}
    assert texts(fig).count("holds here") == 2
    assert numbers["A gain"]["drawings"]["low"] == 0.5
    assert numbers["A gain"]["CUB"]["low"] is None


def test_a_word_that_does_not_stand_is_gray(table):
    fig, *_ = figures.verdict("07_toy", file=table)
    stands, falls = (t.get_color() for t in fig.axes[0].texts if t.get_text() == "holds here")
    assert stands == figures.RIGHT
    assert falls != figures.RIGHT


def test_no_interval_of_a_study_is_cut(table):
    fig, *_ = figures.verdict("07_toy", {"A gain": {"live": [-9.0, 9.0]}}, file=table)
    low, high = fig.axes[0].get_xlim()
    assert low < -9  # every training is seen, its interval of ± 114 is not
    assert 9 < high < 20


def test_what_a_lesson_trained_stands_below_and_has_no_word(table):
    fig, numbers, *_ = figures.verdict("07_toy", {"A gain": {"this": [1.0, 2.0, 4.0]}}, file=table)
    assert texts(fig)[-1] == LIVE
    assert numbers["A gain"]["this"] == {"values": [1.0, 2.0, 4.0]}
    assert math.isnan(here("A gain", "once", [1.0]).low)


def test_a_lesson_without_evidence_has_its_own_run_alone(table):
    fig, *_ = figures.verdict("09_new", {"Turns": {"this": [1.0, 2.0]}}, "degrees", file=table)
    assert fig.axes[0].get_xlabel().startswith("gain in degrees")
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
        assert len(figures.verdict(lesson)[0].axes) == 1
