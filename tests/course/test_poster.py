"""The poster: forces that are those of the losses, and costs that are those of the benchmarks."""

import numpy as np
import pytest

from course import poster


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


def test_costs_are_relative_to_contrastive(tmp_path, monkeypatch) -> None:
    table = tmp_path / "RESULTS.md"
    rows = "".join(
        f"| {name}, B = 512, d = 128 | {ms} |\n"
        for name, ms in (("contrastive", 10), ("margin", 25))
    )
    table.write_text(f"# Benchmarks\n\n## losses\n\n| what | ours_ms |\n|---|---|\n{rows}")
    monkeypatch.setattr(poster, "RESULTS", table)
    assert poster.costs() == {"contrastive": 1.0, "margin": 2.5}
