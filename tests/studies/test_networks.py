"""Notebook 25's whitening and table, on made features: no fold is seen by what is scored on it."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import torch

import dmlkit
from studies import networks


def test_whitening_and_the_table(generator, tmp_path, monkeypatch):
    y, asked, seen = np.arange(8).repeat(9), np.arange(72) % 2 > 0, []
    x = torch.eye(8)[y] + torch.randn(72, 8, generator=generator) / 9

    def load(*_, fold, features):
        names = "abcdefgh" if fold is None else "abcdefgh"[2 * fold : 2 * fold + 2]
        return SimpleNamespace(images=x, labels=y, queries=asked, class_names=[*names])

    def head(x, labels, rates, seed):  # one of whose rates is good
        seen.append({int(c) // 2 for c in x.argmax(dim=1)})
        return [lambda x, r=rate: x if r == 1e-3 else x * 0 + 1 for rate in rates]

    white = networks.whitening(x, torch.from_numpy(y), [0], 0)[0](x)
    within = (white - white.view(8, 9, 8).mean(dim=1)[y]).T.cov()
    torch.testing.assert_close(within, torch.eye(8), rtol=0, atol=1e-4)
    for name, value in {"NETWORKS": ["net"], "keep_features": print, "head": head}.items():
        monkeypatch.setattr(networks, name, value)
    monkeypatch.setattr(networks.data, "load", load)
    monkeypatch.setattr(dmlkit, "ROOT", tmp_path)
    networks.main()
    table = pd.read_csv(tmp_path / "data" / "evidence" / "25_networks.csv", index_col="class")
    assert [*table] == ["net@128", "net@224", "net@224 + whitening", "net@224 + head"]
    assert (table["net@224 + head"] == table["net@224"]).all()
    assert [*table.index] == [*"abcdefgh"]
    rest = [{0, 1, 2, 3} - {fold} for fold in range(4)]  # three searches, three seeds
    assert seen == [part for r in rest for part in [*(r - {k} for k in r), r, r, r]]
