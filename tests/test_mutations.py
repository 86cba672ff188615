"""Mutants are the functions of a module with one place changed, wherever the functions are kept."""

import gc

import pytest
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


def test_functions_are_found_again_after_a_trial_and_a_mutant_without_one_is_an_error():
    mutant = mutations.mutants("geometry")[0]
    first = mutations.kept_functions()
    gc.freeze()
    assert geometry.same_label in first
    assert geometry.same_label in mutations.kept_functions()
    with pytest.raises(RuntimeError, match="no function was changed by geometry"):
        mutations.exchange(mutant, [])


def test_what_is_known_to_compute_the_same_says_why():
    (mutant, *_) = [m for m in mutations.mutants("geometry") if m.explanation()]
    assert mutant.explanation() == "what divides a row of zeros"
