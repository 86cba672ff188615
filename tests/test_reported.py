"""What papers and their repositories print: the tables are whole, and agree with each other."""

from pathlib import Path

import pandas as pd
import pytest

import dmlkit

REPORTED = dmlkit.ROOT / "data" / "reported"
COLUMNS = ["table", "method", "backbone", "dim", "dataset", "metric", "value", "note"]
CELL = ["method", "backbone", "dim"]
EQUAL = {"abs": 0.005 + 1e-9}  # two decimals


@pytest.mark.parametrize("path", sorted(REPORTED.glob("*.csv")), ids=lambda path: path.stem)
def test_each_file_is_one_table_with_one_number_in_each_row(path: Path) -> None:
    table = pd.read_csv(path)
    assert [name for name in table if name in COLUMNS] == COLUMNS
    assert table["table"].nunique() == 1
    assert not table.drop(columns=["value", "note"]).duplicated().any()
    assert table.loc[table["value"].isna(), "note"].notna().all()  # an empty cell says why


@pytest.fixture(scope="module")
def logs() -> pd.DataFrame:
    return pd.read_csv(REPORTED / "extra_dmlplayground_logs.csv")


@pytest.fixture(scope="module")
def runs(logs: pd.DataFrame) -> pd.DataFrame:
    """One row for each run: source, method, backbone, dim, run, and its three numbers."""
    each = logs[logs["run"].notna()]
    return each.pivot(index=["source", *CELL, "run"], columns="metric", values="value")


def once(logs: pd.DataFrame, metric: str) -> pd.Series:
    """What is there once for each log and size, or for each script."""
    return logs[logs["metric"] == metric].set_index(["source", *CELL])["value"]


def table_2() -> pd.Series:
    table = pd.read_csv(REPORTED / "unbiased_table2.csv")
    return table[table["metric"] == "R@1"].set_index(CELL)["value"]


def test_every_row_has_its_source(logs: pd.DataFrame) -> None:
    repository = r"Andrewymd/DMLPlayground@37070c1:(?:results/\w+\.log|train_\w+\.py:\d+(?:-\d+)?)"
    assert logs["source"].str.fullmatch(rf"{repository}|paper: (?:Table|section) [\d.]+").all()
    assert logs["value"].notna().all()


def test_runs_are_whole_and_the_best_epoch_is_no_worse_than_the_last(
    logs: pd.DataFrame, runs: pd.DataFrame
) -> None:
    counts = runs.groupby(["source", *CELL]).size()
    assert sorted(counts) == [1] * 7 + [10] * 5
    assert runs.notna().all(axis=None)
    gain = runs["R@1_best_epoch"] - runs["R@1_last_epoch"]
    epochs = once(logs, "epochs").reindex(runs.index.droplevel("run")).to_numpy()
    assert (gain >= 0).all()
    assert runs["best_epoch"].between(1, epochs).all()
    assert ((gain == 0) | (runs["best_epoch"] < epochs)).all()


def test_means_over_runs_are_those_that_the_logs_end_with(
    logs: pd.DataFrame, runs: pd.DataFrame
) -> None:
    """So the scripts report the best epoch on the test classes, not the last one."""
    means = runs.groupby(["source", *CELL]).mean()
    printed = once(logs, "R@1_log_average")
    assert means["R@1_best_epoch"].to_dict() == pytest.approx(printed.to_dict(), **EQUAL)
    assert (printed.reindex(means.index) - means["R@1_last_epoch"] > 0.005).all()


def test_best_against_last_epoch_over_ten_runs(runs: pd.DataFrame) -> None:
    """The optimism that notebooks 01 and 18 speak of."""
    ten = runs.groupby(["source", "method"]).filter(lambda log: len(log) == 10).groupby("method")
    mean = ten.mean().round(2)
    assert {m: (row["R@1_best_epoch"], row["R@1_last_epoch"]) for m, row in mean.iterrows()} == {
        "Margin Loss": (51.28, 43.83),
        "Lifted Struct": (49.79, 47.37),
        "N-Pairs": (51.61, 50.37),
        "Triplet Semihard": (50.87, 50.42),
        "Proxy-Triplet": (50.46, 50.09),
    }
    order = {
        metric: mean[metric].sort_values(ascending=False).index.tolist()
        for metric in ("R@1_best_epoch", "R@1_last_epoch")
    }
    assert order["R@1_best_epoch"].index("Margin Loss") == 1
    assert order["R@1_last_epoch"].index("Margin Loss") == 4
    assert ten["R@1_best_epoch"].std().round(1).between(0.4, 0.7).all()


def test_table_2_prints_best_epochs_and_single_runs(logs: pd.DataFrame, runs: pd.DataFrame) -> None:
    printed = logs[logs["metric"] == "R@1_printed"].astype({"dim": int}).set_index(CELL)["value"]
    theirs = table_2()
    theirs.index = theirs.index.set_levels(theirs.index.levels[2].astype(int), level=2)
    assert printed.to_dict() == theirs.reindex(printed.index).to_dict()

    counts = runs.groupby(["source", *CELL])["R@1_best_epoch"].agg(["mean", "size"]).reset_index()
    cells = counts.join(printed.rename("printed"), on=CELL).dropna()
    rounded = (cells["mean"] - cells["printed"]).abs() < 0.05 + 1e-9
    found = cells.set_index(["method", "backbone", "size"])[[]].assign(same=rounded.to_numpy())
    assert found["same"].to_dict() == {
        ("Margin Loss", "Inception-BN", 10): True,
        ("Triplet Semihard", "Inception-BN", 10): True,
        ("Proxy-Triplet", "Inception-BN", 10): True,
        ("N-Pairs", "Inception-BN", 1): True,  # with pairs of one image
        ("N-Pairs", "ResNet50", 1): True,
        ("N-Pairs", "Inception-BN", 10): False,
        ("Lifted Struct", "Inception-BN", 10): False,
    }


def test_n_pairs_by_embedding_size(logs: pd.DataFrame) -> None:
    of_sizes = logs["source"].str.endswith("train_npairs_cub_embed.log")
    best = logs[of_sizes & (logs["metric"] == "R@1_best_epoch")].set_index("dim")["value"]
    assert best.round(1).to_dict() == {
        64: 53.7, 128: 58.0, 256: 60.0, 512: 60.4, 1024: 58.9, 2048: 60.3,
    }  # fmt: skip
    assert set(logs.loc[of_sizes, "note"]) == {"same-image pairs 0.1"}


def test_batch_sizes_are_not_all_the_one_that_is_printed(logs: pd.DataFrame) -> None:
    by_method = {
        metric: logs[logs["metric"] == metric].groupby("method")["value"].unique()
        for metric in ("batch_size", "batch_size_default", "batch_size_printed")
    }
    scripts = by_method["batch_size_default"].map(lambda sizes: sizes.item())
    assert set(scripts.index) == set(table_2().index.get_level_values("method"))
    for method, sizes in by_method["batch_size"].items():
        assert sizes.tolist() == [scripts[method]]
    (printed,) = by_method["batch_size_printed"]["all"]
    assert set(scripts.index[scripts == printed]) == {"Struct Clust", "Prototype Loss"}
