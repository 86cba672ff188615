"""The poster: an entry for each loss, and forces that are those of the losses."""

from pathlib import Path

import numpy as np
import pytest

from course import poster
from dmlkit import losses


def test_every_loss_has_its_card() -> None:
    assert poster.EQUATIONS.keys() == {entry.name for entry in losses.entries()}
    assert all(1990 < year < 2100 and equation for year, equation in poster.EQUATIONS.values())


@pytest.mark.parametrize("name", ["contrastive", "n_pairs", "soft_triple", "meta_class"])
def test_forces_are_finite_and_draw_a_sample_to_its_class(name: str) -> None:
    force = poster.forces(name)
    assert force.shape == poster.ANGLES.shape
    assert force.max() == 1
    assert force.min() > -0.1


def test_the_force_of_a_softmax_over_two_proxies_is_known() -> None:
    angle, T = np.radians(poster.ANGLES), 0.05
    wrong = 1 / (1 + np.exp((np.cos(angle) - np.sin(angle)) / T))  # softmax of the other class
    expected = wrong * (np.sin(angle) + np.cos(angle))
    found = poster.forces("normalized_softmax")
    np.testing.assert_allclose(found, expected / expected.max(), atol=1e-4)


def test_costs_are_relative_to_contrastive(tmp_path: Path) -> None:
    assert poster.costs(tmp_path / "missing.md") == {}
    table = tmp_path / "RESULTS.md"
    rows = (("contrastive", "10.0"), ("margin", "25"))
    table.write_text("".join(f"| {x}, B = 512, d = 128 | pml | {ms} | 1 |\n" for x, ms in rows))
    assert poster.costs(table) == {"contrastive": 1.0, "margin": 2.5}
