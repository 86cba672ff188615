"""Your own pictures: a list of files, one row each, as a CSV."""

import csv
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dmlkit.checks import warn_once
from dmlkit.data import own
from dmlkit.data.images import ImageSet, Listing
from dmlkit.data.pictures import Box
from dmlkit.data.visits import last_visit
from dmlkit.files import told

#: The columns, by names that are in use; those of Open Metric Learning are among them.
COLUMNS = {
    **{name: name for name in ("path", "label", "split", "visit", "box")},
    "category": "group",
    **dict.fromkeys(("query", "is_query"), "query"),
    **dict.fromkeys(("gallery", "is_gallery"), "gallery"),
    **{f"{axis}{mark}{i}": f"{axis}{i}" for axis in "xy" for mark in ("", "_") for i in (1, 2)},
}
_CORNERS = ["x1", "y1", "x2", "y2"]
_YES = dict.fromkeys(("true", "yes", "1", "1.0"), True)
_YES |= dict.fromkeys(("false", "no", "0", "0.0", "none", ""), False)


def load(
    split: str,
    root: Path,
    check: bool = True,
    test_share: float = 0.5,
    given: bool = True,
    validation: bool = False,
    class_split: int = 0,
    join: bool = False,
    unreadable: str = "refuse",
    **pictures: Any,
) -> ImageSet:
    """Pictures that a CSV lists: ``root`` is that file, with columns path and label at least.

    Paths are absolute, or below the file's folder. Others, which may be left out: ``split`` (train,
    val, test), else, or with ``given=False``, classes are drawn as in a folder (all train by
    ``test_share=0``); ``is_query`` and ``is_gallery``, of what tests (true, false), else a
    ``visit``, of which each class's last is searched for in those before, else every picture is
    searched for in all others; ``category``, which becomes the group; and a box, in pixels of the
    upright picture, as ``x_1, y_1, x_2, y_2`` or as ``box`` in that order. Names of columns are
    those of Open Metric Learning, or without ``is_`` and ``_``.

    ``join``, ``unreadable`` and all else: see ``folder.load``. Raises FileNotFoundError where there
    is no such file, ValueError with line and column for what cannot be understood.
    """
    table = read(root)
    names = own.joined(table["label"]) if join else table["label"].to_numpy(str)
    ids = np.unique(names, return_inverse=True)[1]
    parts = table["split"].to_numpy(str) if "split" in table else None
    if parts is None or not (given and test_share):
        parts = own.drawn(ids, test_share, class_split)
    groups = table["group"].to_numpy(str) if "group" in table else names
    found = Listing(table["path"].to_numpy(), ids, names, groups, parts)
    boxes, good = table["box"].tolist() if "box" in table else None, np.array(True)
    if check:
        good = own.readable(list(found.paths), root, boxes, unreadable)
        for line in (*_unused(table, root), *_remarks(found, root, good, boxes)):
            warn_once(line)
    rows = own.chosen(found, root, split, validation, class_split, good)
    shown = boxes and [boxes[row] for row in rows]
    images = found.subset(rows).image_set(boxes=shown, **pictures)
    if split == "train":
        return images
    if {"query", "gallery"} & set(table):
        return replace(images, queries=_queries(table.iloc[rows], root))
    return last_visit(images, table["visit"].to_numpy(str)[rows]) if "visit" in table else images


def _remarks(
    found: Listing, root: Path, good: NDArray[np.bool_], boxes: list[Box | None] | None
) -> list[str]:
    kept = boxes and [box for box, is_good in zip(boxes, good, strict=True) if is_good]
    lines = [*own.remarks(found, root), *own.same_files(found.subset(good), root.parent, kept)]
    pictures = pd.DataFrame({"path": found.paths, "label": found.names, "box": boxes or ""})
    if (again := pictures.duplicated()).any():
        some = own.told([os.path.relpath(path, root.parent) for path in found.paths[again]])
        lines.append(f"lines of {root} that say again what others say, {again.sum()}, of {some}")
    return lines


def _unused(table: pd.DataFrame, root: Path) -> list[str]:
    """Columns by names that are not known; pandas writes an index that has none."""
    names = [name for name in table if name and name not in COLUMNS.values()]
    return [f"columns of {root} that are not used: {own.told(names)}"] if names else []


def files(root: Path) -> list[Path]:
    """The list and all its pictures."""
    return [root, *read(root)["path"]]


def read(root: Path) -> pd.DataFrame:
    """The list as a table: path, label and, where they are given, split, query, gallery, visit,
    group, box.
    """
    if root.is_dir():
        raise ValueError(f"expected a CSV by root (--root FILE.csv), but {root} is a folder")
    try:
        with root.open(encoding="utf-8-sig", newline="") as file:
            mark = max(",;\t", key=file.readline().count)
            file.seek(0)
            reader = csv.DictReader(file, delimiter=mark, restval="")
            names, lines, rows = list(reader.fieldnames or ()), [], []
            for row in reader:
                lines.append(reader.line_num)
                rows.append(row)
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{root} is no CSV in UTF-8: {told(error)}") from None
    for line, row in zip(lines, rows, strict=True):
        if None in row:
            raise ValueError(f"{root}, line {line}: more cells than the first line has columns")
    table = pd.DataFrame(rows, index=lines, columns=names, dtype=object)
    table = table.apply(lambda column: column.str.strip())
    table.columns = [COLUMNS.get(name.strip().lower(), name) for name in table.columns]
    if missing := [name for name in ("path", "label") if name not in table]:
        raise ValueError(
            f"{root}: expected columns path and label, but {missing[0]!r} is missing among "
            f"{', '.join(names) or 'none'}"
        )
    if table.empty:
        raise ValueError(f"{root}: expected a line for each picture below the names of columns")
    if twice := table.columns[table.columns.duplicated()].tolist():
        raise ValueError(f"{root}: the column {twice[0]!r} is there twice")
    _check(table, root, "path", bool, "a path")
    _check(table, root, "label", bool, "a label")
    table["label"] = [own.class_name(label) for label in table["label"]]
    table["path"] = [root.parent / path for path in table["path"]]
    if "split" in table:
        table["split"] = table["split"].str.lower()
        _check(table, root, "split", own.PARTS.__contains__, f"one of {', '.join(own.PARTS)}")
        table["split"] = table["split"].map(own.PARTS)
    for name in {"query", "gallery"} & set(table):
        table[name] = table[name].str.lower()
        _check(table, root, name, _YES.__contains__, "true or false")
        table[name] = table[name].map(_YES)
    return _with_boxes(table, root)


def _with_boxes(table: pd.DataFrame, root: Path) -> pd.DataFrame:
    """The table with boxes as four whole numbers, None where there is no box."""
    if corners := set(_CORNERS) & set(table):
        if len(corners) < 4 or "box" in table:
            raise ValueError(f"{root}: expected a box as x_1, y_1, x_2 and y_2, or as one column")
        table["box"] = table[_CORNERS].agg(" ".join, axis=1)
    if "box" not in table:
        return table
    numbers = [re.split(r"[\s,;]+", text.strip("[]() ")) for text in table["box"]]
    table["box"] = [" ".join(filter(None, each)) for each in numbers]

    def is_box(text: str) -> bool:
        number = r"\d+(\.\d*)?"
        return not text or re.fullmatch(rf"{number}( {number}){{3}}", text) is not None

    _check(table, root, "box", is_box, "four numbers from 0, x_1, y_1, x_2, y_2, or nothing")
    boxes = [tuple(round(float(number)) for number in text.split()) for text in table["box"]]
    table["box"] = pd.Series([box or None for box in boxes], table.index, object)
    return table


def _check(
    table: pd.DataFrame, root: Path, column: str, accepts: Callable[[str], object], expected: str
) -> None:
    bad = [i for i, text in table[column].items() if not accepts(text)]
    if bad:
        more = f"; and {len(bad) - 1} more lines" if len(bad) > 1 else ""
        raise ValueError(
            f"{root}, line {bad[0]}, column {column}: expected {expected}, found "
            f"{table[column][bad[0]]!r}{more}"
        )


def _queries(table: pd.DataFrame, root: Path) -> NDArray[np.bool_] | None:
    """Which are queries; none where all are, and are each other's gallery."""
    query, gallery = (table.get(name) for name in ("query", "gallery"))
    query = ~gallery.astype(bool) if query is None else query.astype(bool)
    gallery = ~query if gallery is None else gallery.astype(bool)
    if query.all() and (gallery.all() or not gallery.any()):
        return None
    for line in table.index[query == gallery]:
        raise ValueError(
            f"{root}, line {line}: expected is_query or is_gallery to be true, found "
            f"{'both' if query[line] else 'neither'} (all lines of a split may be both)"
        )
    if not query.any():
        raise ValueError(f"{root}: of what tests, no line is a query")
    return query.to_numpy()
