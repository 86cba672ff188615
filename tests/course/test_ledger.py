"""The ledger is shown by its primary parts; nothing else makes a claim's verdict."""

import json

import pytest

from course import ledger
from dmlkit import claims


def found(folder, *verdicts):
    provenance = {"notebook": "07_proxies", "profile": "ci", "device": "cpu"}
    numbers = {"claims": [verdict.facts() for verdict in verdicts]}
    (folder / "toy.json").write_text(json.dumps({"numbers": numbers, "provenance": provenance}))
    return claims.verdicts(folder)


def test_the_verdict_of_a_claim_is_that_of_its_primary_part(tmp_path):
    frame = found(
        tmp_path,
        claims.record("C18", 0.2, (0.19, 0.21), n=5, part=claims.table()["C18"]["primary"]),
        claims.record("C18", -0.02, (-0.03, -0.01), n=5, part="margin"),
        claims.record("C18", 0.0, (-0.001, 0.001), n=5, part="other"),
        claims.record("C19", 0.2, (0.1, 0.3), n=5, part="a secondary one alone"),
        claims.record("C21", 0.0, (-0.1, 0.1), n=5, kept=True),
        claims.record("B2", 1e-15),
    )
    summary = ledger.summary(frame)
    assert list(summary.index) == list(claims.table())
    assert summary.loc["C18"].to_dict() == {
        "verdict": "reproduced", "effect": "+0.2 [+0.19, +0.21] distance, n = 5", "holm": "stands",
        "needed": "", "others": "1 contradicted, 1 no effect", "made_with": "ci", "figures": "toy",
    }  # fmt: skip
    assert summary.loc["C19", ["verdict", "holm", "others"]].tolist() == [
        "open", "", "1 reproduced",
    ]  # fmt: skip
    assert int(needed := summary.loc["C21", "needed"]) > 5
    assert summary.loc["C21", ["verdict", "holm", "made_with"]].tolist() == [
        "undecided", "", "kept Runs",
    ]  # fmt: skip
    assert summary.loc["B2", ["verdict", "effect", "made_with"]].tolist() == [
        "reproduced", "1e-15 cosine, n = 1", "identity",
    ]  # fmt: skip
    assert summary.loc["A1", "verdict"] == "open"
    lines = ledger.markdown(frame).splitlines()
    row = next(line for line in lines if line.startswith("| C21"))
    assert f"| undecided | +0 [-0.1, +0.1] Recall@1, n = 5 |  | {needed} |  | kept Runs |" in row


def test_identities_and_tables_are_not_counted_as_evidence(tmp_path):
    frame = found(
        tmp_path,
        claims.record("C18", 0.2, (0.1, 0.3), n=5),
        claims.record("C19", 0.2, (0.1, 0.3), n=5, part="secondary"),
        claims.record("B2", 1e-15),
        claims.record("B11", 5),
    )
    assert ledger.tally(frame) == (
        "Of 31 claims that runs settle: 30 open, 1 reproduced. Not counted as evidence: 4 "
        "identities (3 open, 1 reproduced), and 4 claims about printed tables (1 contradicted, "
        "3 open)."
    )
    assert ledger.markdown(frame).startswith(ledger.tally(frame))


def test_two_primary_parts_of_a_claim_are_refused(tmp_path):
    name = claims.table()["C18"]["primary"]
    parts = [claims.record("C18", 0.2, (0.1, 0.3), n=5, part=part) for part in ("", name)]
    with pytest.raises(ValueError, match="C18 has 2 primary parts, in toy, toy"):
        ledger.summary(found(tmp_path, *parts))
