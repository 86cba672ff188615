"""Matches of groceries: the kept table has what is searched, and the kept maps what it counted."""

import numpy as np
import pandas as pd
import torch

from dmlkit import rerank
from studies import matches


def test_the_kept_table_and_maps_agree_with_the_search():
    kept = pd.read_csv(matches.PATH)
    images, queries, first, cosines = matches.asked()
    assert kept["query"].tolist() == queries.tolist()
    assert kept.groupby("class").size().eq(matches.QUERIES).all()
    assert kept["class"].tolist() == [images.class_names[c] for c in images.labels[queries]]
    table = {name: np.array([*map(str.split, kept[name])], float) for name in kept.columns[2:]}
    np.testing.assert_array_equal(table["first"], first)
    np.testing.assert_allclose(table["cosines"], cosines, atol=1e-4)
    with np.load(matches.MAPS) as file:
        rows, codes, scales = file["rows"], file["codes"], file["scales"]
    own, other = (rerank.points(scales[i] * torch.from_numpy(codes[i]).float()) for i in (0, 2))
    at = kept["query"].tolist().index(rows[0, 0])
    assert len(rerank.matches(own, other)) == table[matches.MAIN][at, 1]
