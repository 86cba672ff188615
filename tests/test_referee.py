"""The public entry points give what they gave when the referee was frozen; see ``referee``."""

import numpy as np
import pytest

from tests import referee

FROZEN = referee.load()
EXACT = FROZEN["made with"] == referee.made_with()


@pytest.mark.parametrize("part", referee.PARTS)
def test_nothing_has_changed(part: str) -> None:
    if part in referee.PINNED_ONLY and not EXACT:
        pytest.skip(f"frozen with {FROZEN['made with']}: here trainings differ in last bits")
    assert referee.differences(part, FROZEN[part], referee.collect(part), EXACT) == []


@pytest.mark.parametrize("part", referee.PARTS)
def test_one_flipped_digit_and_one_lost_key_are_named(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(referee, "CHANGED", {})
    then = FROZEN[part]
    flipped, lost, *_ = then
    was = then[flipped]
    text = was if isinstance(was, str) else was[1]
    other = text[:-1] + ("1" if text[-1] == "0" else "0")
    now = then | {"new": "and so no difference"}
    now[flipped] = other if isinstance(was, str) else [was[0], other, *was[2:]]
    del now[lost]
    first, second = referee.differences(part, then, now, exact=True)
    assert first.startswith(f"{part}/{flipped} ")
    assert second == f"{part}/{lost} is gone"


@pytest.mark.parametrize("change, exactly, closely", [(0, 0, 0), (1e-7, 1, 0), (1e-3, 1, 1)])
def test_a_bit_counts_where_bits_are_equal_and_a_number_everywhere(
    change: float, exactly: int, closely: int
) -> None:
    x = np.random.default_rng(0).standard_normal((24, 12)).astype(np.float32)
    then = {"gradient": referee.fingerprint(x)}
    x[0] *= 1 + change
    now = {"gradient": referee.fingerprint(x)}
    found = [len(referee.differences("losses", then, now, exact)) for exact in (True, False)]
    assert found == [exactly, closely]


def test_a_difference_that_is_meant_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(referee, "CHANGED", {"losses/x*": "x was wrong"})
    gone = referee.differences("losses", {"x/value": "1", "y/value": "1"}, {}, exact=True)
    assert gone == ["losses/y/value is gone"]
