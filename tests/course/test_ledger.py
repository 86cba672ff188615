"""The ledger as it is shown."""

from course import ledger
from studies import claims
from tests.studies.test_claims import around, written


def test_the_page_has_each_claim_with_its_rows_and_its_history(tmp_path):
    row = claims.row("A1", "fine-tuned", around(0.03), overlap=0.1, measure="of one loss")
    written(tmp_path, row, claims.counted("B2", 1e-15))
    frame = claims.ledger(tmp_path)
    text = ledger.markdown(frame)
    assert text.startswith(
        "Of 1 tests (1 of a meta-reviewer's sentences) 0 could not tell (0 too small), 1 found a "
        "part of what the meta-reviewer of SEC (not the paper, in these words) claims, and 0 did "
        "not. "
    )
    assert (
        "The tests are of 1 claims. Besides, 1 identities "
        "hold, 0 check of code passed, and in the papers' own tables 0 claims do and 0 do not. "
        "What was decided is of the meta-reviewer of SEC (not the paper, in these words), "
        "fine-tuned, on drawings; by the measure above 0 of these 1 were too small, too, and what "
        "such studies find is too large in the mean. After Holm's correction these words stand: 1 "
        "holds here."
    ) in text
    assert text.count("\n## ") == len(claims.table())
    (line,) = [each for each in text.splitlines() if each.startswith("| fine-tuned")]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[:3] == ["fine-tuned, on drawings (a)", "holds here", "+3.00"]
    assert "\n- (a) of one loss\n" in text
    assert cells[5] == "2.41"
    assert cells[8].startswith("stands, p = ")
    assert cells[7] == "12 (5.1)"
    assert "| check | passed | +1e-15 |" in text
    assert "Not tested." in text
    assert "A question, asked by the meta-reviewer of SEC" in text
    assert "the smallest effect is 1 point of Recall@1." in text
    assert "Known when the rule was written:" in text
