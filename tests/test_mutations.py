"""Mutants are the functions of a module with one place changed, wherever the functions are kept."""

import torch

from benchmarks import mutations
from dmlkit import geometry


def test_mutants_have_names_of_their_own_and_are_of_functions_alone():
    found = mutations.mutants("geometry")
    assert len({mutant.name for mutant in found}) == len(found) > 50
    assert not [mutant for mutant in found if mutant.line.lstrip().startswith(("def ", "import "))]


def test_a_mutant_takes_the_place_of_its_function(monkeypatch):
    change = "labels[:, None] == others[None, :]  ->  labels[:, None] != others[None, :]"
    (mutant,) = [m for m in mutations.mutants("geometry") if m.name.endswith(change)]
    function, labels = geometry.same_label, torch.tensor([1, 2])
    monkeypatch.setattr(function, "__code__", function.__code__)  # it is put back at the end
    mutations.exchange(mutant, [function, geometry.norms])
    assert geometry.same_label(labels, labels[:1]).tolist() == [[False], [True]]
    assert geometry.same_label(labels).tolist() == [[False, False], [False, False]]


def test_what_is_known_to_compute_the_same_says_why():
    (mutant, *_) = [m for m in mutations.mutants("geometry") if m.explanation()]
    assert mutant.explanation() == "what divides a row of zeros"
