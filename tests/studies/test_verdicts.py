"""The table that lessons end with: it is what the studies say now, and it can be drawn."""

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from dmlkit import ROOT, figures
from dmlkit.figures.verdicts import TABLE
from studies import verdicts

KEPT = pd.read_csv(ROOT / "data" / "evidence" / TABLE)


def test_the_table_is_what_the_studies_say_now() -> None:
    found = verdicts.table()
    exact = ["lesson", "what", "condition", "n", "word"]
    assert found[exact].values.tolist() == KEPT[exact].values.tolist(), "python -m studies.verdicts"
    for column in ("effect", "low", "high", "least"):
        pd.testing.assert_series_equal(
            found[column].astype(float), KEPT[column].astype(float), atol=0.02
        )


@pytest.mark.parametrize("lesson", KEPT["lesson"].unique())
def test_every_lesson_s_verdict_is_drawn(lesson: str) -> None:
    fig, numbers, alt, caption = figures.verdict(lesson)
    plt.close(fig)
    assert sum(map(len, numbers.values())) == (KEPT["lesson"] == lesson).sum()
    assert alt.endswith(".")
    assert "95 %" in caption


def test_a_lesson_without_evidence_has_no_verdict() -> None:
    with pytest.raises(ValueError, match="has no row for lesson '99'"):
        figures.verdict("99")
