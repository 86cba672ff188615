"""A list of pictures: its columns, what they mean, and what is wrong with them, by line."""

import re
import warnings

import numpy as np
import pytest
from PIL import Image

from dmlkit import search, training
from dmlkit.data import load
from tests.data.trees import classes, picture
from tests.training.tiny import run

SMALL = {"crop": 16, "resize": 18}


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("DMLKIT_CACHE", str(tmp_path / "cache"))  # where unreadable files are listed
    return classes(tmp_path, "ant bee cat dog")


def written(root, *lines, encoding="utf-8"):
    (root / "list.csv").write_text("\n".join(lines) + "\n", encoding=encoding)
    return root / "list.csv"


def rows(root, *columns):
    """Two pictures of each class, and what columns say of the class and the picture."""
    for name in ("ant", "bee", "cat", "dog"):
        for i in range(2):
            yield ",".join([f"{name}/{i}.png", name, *(str(column(name, i)) for column in columns)])


@pytest.mark.filterwarnings("ignore:files in .* not used")
def test_a_list_of_paths_and_labels_is_split_by_class_as_a_folder_is(root):
    path = written(root, "path;label", *(line.replace(",", ";") for line in rows(root)))
    for split in ("train", "test"):
        listed, folder = load("list", split, path, **SMALL), load("folder", split, root, **SMALL)
        assert listed.class_names == folder.class_names
        assert set(listed.images.paths) <= set(folder.images.paths)
        assert len(listed) == 4


def test_the_columns_of_open_metric_learning(root):
    """Whose pandas writes an index first; a line of what trains is neither query nor gallery."""
    head = ",path,label,split,is_query,is_gallery,category,x_1,x_2,y_1,y_2"
    lines = []
    for n, line in enumerate(rows(root)):
        tests = line.startswith(("cat", "dog"))
        role = f"{n % 2 == 0},{n % 2 == 1}" if tests else ","
        part = "validation" if tests else "train"
        lines.append(f"{n},{line},{part},{role},kind{n % 2},{n}.0,12,3,15")
    path = written(root, head, *lines, encoding="utf-8-sig")
    train, test = (load("list", split, path, **SMALL) for split in ("train", "test"))
    assert (train.class_names, test.class_names) == (("ant", "bee"), ("cat", "dog"))
    assert train.queries is None
    assert test.queries.tolist() == [True, False] * 2
    assert test.groups.tolist() == ["kind0", "kind1"] * 2
    assert test.images.boxes[1] == (5, 3, 12, 15)
    cut = Image.open(root / "cat" / "1.png").crop((5, 3, 12, 15)).resize((18, 18), 2)
    expected = np.asarray(cut)[1:17, 1:17]
    assert np.array_equal(test[1].permute(1, 2, 0), expected)


def test_visits_validation_and_absolute_paths(root, tmp_path_factory):
    away = picture(tmp_path_factory.mktemp("away") / "0.png", 77)
    lines = rows(root, lambda name, i: "valid" if name == "cat" else "Train", lambda _, i: i)
    tested = [f"{away},elk,test,a", "dog/2.png,elk,test,b", "dog/3.png,elk,test,"]
    path = written(root, "path,label,split,visit", *lines, *tested)
    found = {split: load("list", split, path, **SMALL) for split in ("train", "val", "test")}
    assert [images.class_names for images in found.values()] == [
        ("ant", "bee", "dog"), ("cat",), ("elk",)
    ]  # fmt: skip
    assert found["val"].queries.tolist() == [False, True]
    assert found["test"].queries.tolist() == [False, True, False]
    assert found["test"].images.paths[0] == away


@pytest.mark.filterwarnings("ignore:lines of .* say again")
def test_boxes_in_one_column_and_a_whole_picture_where_there_is_none(root):
    boxes = ["1,2,9,12", "[1 2 9 12]", "", "(3, 4, 5, 6)"]
    lines = [f'cat/0.png,{"cat" if i < 2 else "dog"},"{box}"' for i, box in enumerate(boxes)]
    path = written(root, "path,label,box", *lines, "ant/0.png,ant,", "bee/0.png,bee,")
    images = load("list", "test", path, test_share=1.0, **SMALL)
    assert images.images.boxes == [*[(1, 2, 9, 12)] * 2, None, (3, 4, 5, 6), None, None]


@pytest.mark.parametrize(
    "lines, message",
    [
        (
            ["path,class", "ant/0.png,ant"],
            "columns path and label, but 'label' is missing among path, class",
        ),
        (["path,label", "ant/0.png,ant", "", ",ant"], "line 4, column path: .* a path, found ''"),
        (["path,label", "a.png,", "b.png,"], "line 2, column label: .*found ''; and 1 more line"),
        (["path,label,split", "a.png,a,dev"], "line 2, column split: .*train, .*, found 'dev'"),
        (["path,label,query", "a.png,a,maybe"], "column query: .* true or false, found 'maybe'"),
        (["path,label,box", "a.png,a,1 2 3"], "column box: expected four numbers .* '1 2 3'"),
        (["path,label,x1,y1,x2,y2", "a,a,1,,3,4"], "column box: expected four numbers"),
        (["path,label,box", "a.png,a,-1 0 2 3"], "column box: expected four numbers from 0"),
        (["path,label", "a.png,a,b"], "line 2: more cells than"),
        (["path,label"], "a line for each picture below the names"),
        ([], "'path' is missing among none"),
        (["path,label,x_1,y_1", "a.png,a,1,1"], "a box as x_1, y_1, x_2 and y_2, or as one col"),
        (["path,label,box,x1,y1,x2,y2", "a.png,a,,1,1,9,9"], "a box as x_1, .* or as one column"),
        (["path,label,path", "a.png,a,b"], "the column 'path' is there twice"),
    ],
)
def test_what_cannot_be_understood_is_named_by_line_and_column(root, lines, message):
    with pytest.raises(ValueError, match=rf"list\.csv.*{message}"):
        load("list", "train", written(root, *lines))


@pytest.mark.parametrize(
    "line, message",
    [("1,1", "line 3: .* found both"), ("0,0", "line 3: .* found neither")],
)
def test_a_picture_is_query_or_gallery(root, line, message):
    path = written(root, "path,label,query,gallery", "ant/0.png,ant,1,0", f"ant/1.png,ant,{line}")
    with pytest.raises(ValueError, match=message):
        load("list", "test", path, test_share=1.0)
    both = written(root, "path,label,query,gallery", "ant/0.png,ant,1,1", "ant/1.png,ant,1,1")
    assert load("list", "test", both, test_share=1.0).queries is None


def test_columns_by_unknown_names_are_told(root):
    path = written(root, "path,label,splt,Score", *rows(root, lambda *_: "train", lambda *_: 1))
    with pytest.warns(UserWarning, match=r"columns of .* that are not used: 2 \(splt, Score\)"):
        load("list", "train", path, **SMALL)


def test_missing_files_boxes_outside_and_other_files_are_named(root):
    lines = [*rows(root, lambda *_: ""), "gone.png,ant,", 'ant/2.png,ant,"0,0,99,9"']
    path = written(root, "path,label,box", *lines)
    told = r"2 of 10 .*gone\.png.*No such file.*the box \(0, 0, 99, 9\) is not within its 22 x 20"
    with pytest.raises(ValueError, match=told):
        load("list", "train", path, **SMALL)
    with pytest.warns(UserWarning, match="2 of 10 .* left out"):
        assert len(load("list", "train", path, unreadable="skip", **SMALL)) == 4
    with pytest.raises(ValueError, match=r"a CSV by root .* is a folder"):
        load("list", "train", root)
    with pytest.raises(ValueError, match=r"0\.png is no CSV in UTF-8"):
        load("list", "train", root / "ant" / "0.png")
    with pytest.raises(FileNotFoundError, match="nothing"):
        load("list", "train", root / "nothing.csv")


def test_what_is_listed_twice_or_wrong_is_told_once_for_all_splits(root):
    lines = [*rows(root), "ant/0.png,ant", "cat/0.png,cat", "cat/0.png,dog"]
    path = written(root, "path,label", *lines)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for split in ("train", "test"):
            load("list", split, path, **SMALL)
    same, again = (str(each.message) for each in told)
    assert re.search("identical files in .*: 1 in two classes", same)
    assert re.search(r"list.csv that say again what others say, 2, of 2 \(ant/0.*, cat/0", again)


def test_a_list_is_trained_on_and_searched_in_its_boxes(root, tmp_path):
    path = written(root, "path,label,box", *rows(root, lambda _, i: "1 2 11 12" if i else ""))
    asked = training.Experiment(
        data="list", data_args={"root": str(path), **SMALL}, model_args={"widths": [4, 8]}, dim=8,
        sampler_args={"classes": 2, "per_class": 2}, steps=2,
    )  # fmt: skip
    done = run(asked, tmp_path / "runs")
    gallery = search.gallery(done)
    assert gallery.images.images.boxes == [None, (1, 2, 11, 12)] * 2
    assert len(set(gallery.items)) == 4
