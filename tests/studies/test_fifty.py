"""Fifty photographs: the kept records are whole, and what is cheap in them comes out again."""

import json

import numpy as np
import pytest
import torch

from dmlkit import data
from dmlkit.lessons import what_came_after as lesson
from studies import fifty


def test_the_records_have_all_shops_and_settings():
    for part, (_, shops) in fifty.PARTS.items():
        assert [*lesson.recorded(part)] == [str(k) for k in range(shops)]
    for shop in lesson.recorded("fifty").values():
        assert len(shop) == 2 + len(fifty.RATES) + len(fifty.PENALTIES)
        assert len(shop["all layers"]["same"]) == 5
        assert len(shop["all layers"]["new"]) in (20, 21)


def test_untouched_features_of_a_shop_come_out_again():
    every = data.load("grocery", "test", fold=None, features=f"{fifty.KEPT}@224")
    names = np.array(every.class_names)[every.labels]
    _, _, new, _ = lesson.rows_of(2, 5, 10)
    found = fifty.nearest(every.images[new].flatten(1), names[new], every.queries[new])
    assert found == pytest.approx(lesson.recorded("fifty")["2"]["untouched"]["new"], abs=0.01)


def test_the_classifier_separates_what_a_plane_separates():
    y = torch.arange(3).repeat(20)
    x = torch.nn.functional.one_hot(y, 1280).float()
    x += 0.1 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0)) / 36
    layer = fifty.classifier(x, y, 1e-4)
    assert layer(torch.nn.functional.normalize(x)).argmax(dim=1).tolist() == y.tolist()


def test_a_setting_is_not_chosen_by_the_shop_that_it_is_for(monkeypatch):
    shops = json.loads(json.dumps(lesson.recorded("fifty")))
    own = shops["0"]["head, 0.003"]["same"]
    shops["0"]["head, 0.003"]["same"] = dict.fromkeys(own, 100.0)
    before = lesson.fifty()["head"]["same"][0].tolist()
    monkeypatch.setattr(lesson, "recorded", lambda _: shops)
    assert lesson.fifty()["head"]["same"][0].tolist() == before


def test_the_carton_shops_have_five_cartons_and_one_way_of_naming_them():
    cartons = data.load("grocery64", "test", fold=None).class_names[28:59]
    for number, shop in lesson.recorded("cartons").items():
        draw, fold = divmod(int(number), 4)
        *_, products = lesson.rows_of(fold, 5, 10, draw, cartons=True)
        assert set(products) <= set(cartons)
        for way in ("all layers", "head, 0.0003"):
            assert set(shop[way]["by proxies"]) == set(products)


def test_without_photographs_the_notebook_shows_the_record():
    live = lesson.of_record(1)
    assert [*live] == [*lesson.WAYS]
    assert "classifier" in lesson.table(live)
