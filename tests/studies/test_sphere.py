"""Forms of SEC and SEE are compared with the softmax that is named."""

import numpy as np
import pytest

from dmlkit.statistics import Luck
from studies.rules import Arm
from studies.sphere import SOFTMAX, Forms
from tests.studies.test_lessons import condition

RNG = np.random.default_rng(0)


@pytest.fixture
def form() -> Forms:
    plain = RNG.random(12)
    arms = {SOFTMAX: plain, "with": plain + np.tile([0.02, 0.04], 6), "without": plain + 0.01}
    at = condition("from scratch", **arms)
    of_one = {name: Arm(name, {}, {}, points=SOFTMAX, recipe_of="with") for name in ("without",)}
    at.made.update(of_one)
    own = at.wide()
    scores = {"as searched": own, "restricted": own.assign(**{SOFTMAX: plain + 0.1})}
    return Forms(at, scores, Luck(0.0))


def test_the_plain_loss_is_the_one_that_is_named(form: Forms) -> None:
    assert form.minus("without", SOFTMAX, "as searched")["mean"] == pytest.approx(1)
    assert form.minus("without", SOFTMAX)["mean"] == pytest.approx(-9)


def test_a_mean_is_told_by_search_and_one_recipe_has_its_kinds_luck_or_its_own(form: Forms) -> None:
    assert form.by_search("with", "without") == pytest.approx([1, 3])
    one = form.minus("with", "without")
    two = Forms(form.at, form.scores, Luck(1e-1)).minus("with", "without")
    assert one["mean"] == two["mean"] == pytest.approx(2)
    assert two["high"] - two["low"] > 2 * (one["high"] - one["low"])
    assert one["low"] < -1  # its two searches differ by 2
