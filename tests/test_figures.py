"""Figures: the look, the PNG with its numbers, and what is refused."""

import base64
import io
import json
import math
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.animation import FuncAnimation
from matplotlib.figure import Figure
from PIL import Image
from scipy import stats

import dmlkit
from dmlkit import figures, numerics
from dmlkit.data import ImageSet
from studies import claims

mpl.use("Agg")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for figures, after ``start``; the look is put back afterwards."""
    monkeypatch.setenv("DMLKIT_FIGURES", str(tmp_path / "figures"))
    monkeypatch.setattr(figures, "provenance", None)
    with mpl.rc_context():
        figures.begin_notebook("00_toy", profile="smoke", seeds=3, device="cpu", steps=300)
        yield tmp_path / "figures"
    plt.close("all")


def line() -> Figure:
    fig, axes = plt.subplots()
    axes.plot([0, 1, 4])
    return fig


def record(folder: Path, name: str = "toy") -> dict:
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))


def test_save_writes_the_picture_and_everything_beside_it(folder: Path) -> None:
    images = ImageSet(torch.zeros(1, 1, 2, 2), np.array([0]), np.array(["g"]), ("a",))
    data = {"recall": 0.123456789, "steps": 300}
    figures.save(line(), "toy", data, "A line.", "It rises.", datasets={"glyphs": images})
    assert sorted(path.name for path in folder.iterdir()) == ["toy.json", "toy.png"]
    kept = record(folder)
    assert kept["alt"] == "A line."
    assert kept["caption"] == "It rises."
    assert kept["numbers"] == {"recall": 0.123457, "steps": 300}
    provenance = kept["provenance"]
    assert provenance["notebook"] == "00_toy"
    assert provenance["profile"] == "smoke"
    assert provenance["seeds"] == 3
    assert provenance["device"] == "cpu"
    assert provenance["parameters"] == {"steps": 300}
    assert provenance["datasets"] == {"glyphs": images.fingerprint}
    assert provenance["versions"]["numpy"] == np.__version__
    assert provenance["numerics"] == numerics.describe()
    with Image.open(folder / "toy.png") as picture:
        assert picture.format == "PNG"
        assert "Software" not in picture.info


def test_equal_input_gives_equal_bytes(folder: Path) -> None:
    contents = []
    for _ in range(2):
        figures.save(line(), "toy", {"x": [1, 2]}, "A line.")
        contents.append([path.read_bytes() for path in sorted(folder.iterdir())])
    assert contents[0] == contents[1]


def test_a_picture_of_a_widget_has_its_own_size_and_alt_text(folder: Path) -> None:
    fig, _ = plt.subplots(figsize=(4, 2))
    found = figures.live(fig, 'Norm "2".')
    assert 'alt="Norm &quot;2&quot;."' in found
    assert "width" not in found.replace("max-width", "")
    content = found.partition("base64,")[2].partition('"')[0]
    with Image.open(io.BytesIO(base64.b64decode(content))) as image:
        assert image.size == (400, 200)
    assert not plt.get_fignums()


def moving(frames: int) -> FuncAnimation:
    """A line that grows."""
    fig = Figure(figsize=(2, 2))
    axes = fig.subplots()
    return FuncAnimation(fig, lambda k: axes.plot([0, k]), frames=frames)


def test_a_film_is_kept_beside_the_picture(folder: Path) -> None:
    figures.save(line(), "toy", {}, "A line.", film=moving(3))
    figures.save(line(), "again", {}, "A line.", film=moving(3))
    film = folder / "toy.gif"
    assert film.read_bytes() == (folder / "again.gif").read_bytes()
    with Image.open(film) as image:
        assert (image.n_frames, image.info["duration"], image.info["loop"]) == (3, 200, 0)


def test_a_film_that_is_too_large_is_refused_and_leaves_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "MAX_FILM_BYTES", 500)
    with pytest.raises(ValueError, match=r"the film of 'toy' has \d+ bytes, above 500"):
        figures.save(line(), "toy", {}, "A line.", film=moving(3))
    assert not folder.exists()


def test_a_figure_is_there_as_svg_and_pdf_where_that_is_asked_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DMLKIT_VECTORS", "1")
    figures.save(line(), "toy", {}, "A line.")
    assert "</svg>" in (folder / "vectors" / "toy.svg").read_text(encoding="utf-8")
    assert (folder / "vectors" / "toy.pdf").read_bytes().startswith(b"%PDF")


def test_without_the_variable_figures_go_to_the_build_folder(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DMLKIT_FIGURES")
    monkeypatch.setattr(dmlkit, "ROOT", tmp_path)
    figures.save(line(), "toy", {}, "A line.")
    assert (tmp_path / "build" / "smoke" / "figures" / "toy.png").exists()


def test_the_reader_gets_alt_text_and_caption_once(folder: Path) -> None:
    fig = line()
    shown = figures.save(fig, "toy", {}, 'A <line> & "dots".', "Less < more.")
    page = shown._repr_html_()
    assert 'alt="A &lt;line&gt; &amp; &quot;dots&quot;."' in page
    assert "<figcaption>Less &lt; more.</figcaption>" in page
    assert 'src="data:image/png;base64,iVBOR' in page
    assert repr(shown) == 'Figure toy: A <line> & "dots".'
    assert not plt.fignum_exists(fig.number)  # else the notebook shows it again, without alt text


def test_a_notebook_gets_the_picture_as_png_beside_the_html(folder: Path) -> None:
    from IPython.core.formatters import DisplayFormatter

    shown = figures.save(line(), "toy", {}, "A line.", "It rises.")
    data, about = DisplayFormatter().format(shown)
    assert data["image/png"] == (folder / "toy.png").read_bytes()
    assert {"text/html", "text/plain"} < data.keys()
    width = round(96 * figures.WIDTH)
    assert about == {"image/png": {"alt": "A line.", "figure": "toy", "width": width}}


def test_numbers_of_every_kind_become_json(folder: Path) -> None:
    data = {
        "frame": pd.DataFrame({"loss": ["a", "b"], "recall": [0.5, 1 / 3]}),
        "series": pd.Series([1, 2]),
        "array": np.arange(4, dtype=np.float32).reshape(2, 2),
        "tensor": torch.tensor([0.5]),
        "scalars": (np.int64(2), np.float32(0.1), True, None, "text"),
        "nested": {5: {"mean": 1e-12 / 3}},
    }
    figures.save(line(), "toy", data, "A line.")
    assert record(folder)["numbers"] == {
        "frame": {"loss": ["a", "b"], "recall": [0.5, 0.333333]},
        "series": [1, 2],
        "array": [[0, 1], [2, 3]],
        "tensor": [0.5],
        "scalars": [2, 0.1, True, None, "text"],
        "nested": {"5": {"mean": 3.33333e-13}},
    }


@pytest.mark.parametrize("path", ["/home/someone/photos", "C:\\someone\\photos"])
def test_no_absolute_path_is_kept(folder: Path, path: str) -> None:
    figures.begin_notebook("00_toy", profile="smoke", seeds=1, device="cpu", folder=path)
    figures.save(line(), "toy", {}, "A line.")
    assert record(folder)["provenance"]["parameters"] == {"folder": "photos"}
    with pytest.raises(ValueError, match="is an absolute path"):
        figures.save(line(), "toy", {"where": path}, "A line.")


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"data": {"a": [1, math.nan]}}, ValueError, "Out of range float"),
        ({"data": {"a": np.float32(math.inf)}}, ValueError, "Out of range float"),
        ({"data": {"a": Path("b")}}, TypeError, "not JSON serializable"),
    ],
)
def test_what_json_cannot_hold_leaves_nothing(
    folder: Path, arguments: dict, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        figures.save(**{"fig": line(), "name": "toy", "data": {}, "alt": "A line."} | arguments)
    assert not folder.exists()


def test_numpys_numbers_are_parameters_too(folder: Path) -> None:
    lists = {"steps": np.int64(3), "sizes": np.array([8, 16])}
    figures.begin_notebook("a", profile="ci", seeds=np.arange(2), device="cpu", **lists)
    figures.save(line(), "toy", {}, "A line.")
    kept = record(folder)["provenance"]
    assert (kept["seeds"], kept["parameters"]) == ([0, 1], {"steps": 3, "sizes": [8, 16]})


def test_save_before_start_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "provenance", None)
    with pytest.raises(RuntimeError, match="call begin_notebook first"):
        figures.save(line(), "toy", {}, "A line.")


def test_numbers_are_marked_where_they_are(folder: Path) -> None:
    data = {
        "runs": figures.sample(torch.tensor([[0.5, 1.0], [0.7, 1.0]]), x=[1, 2]),
        "seconds": figures.timing(0.25),
        "worst": figures.example({"class": 7}),
        "claims": [claims.row("C18", "from scratch", [0.2, 0.3, 0.25]).facts()],
    }
    figures.save(line(), "toy", data, "A line.")
    numbers = record(folder)["numbers"]
    assert numbers["runs"] == {"values": [[0.5, 1.0], [0.7, 1.0]], "x": [1, 2]}
    assert numbers["seconds"] == {"timing": 0.25}
    assert numbers["worst"] == {"example": {"class": 7}}
    assert numbers["claims"][0]["values"] == [0.2, 0.3, 0.25]


def test_a_large_picture_is_made_small_and_stays_readable(folder: Path) -> None:
    noise = torch.rand(6, 16, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    fig, _ = figures.contact_sheet(noise)
    shown = figures.save(fig, "toy", {}, "Noise.")
    assert len(shown.png) <= figures.MAX_BYTES
    with Image.open(folder / "toy.png") as picture:
        assert picture.width >= 80 * figures.WIDTH


@pytest.mark.parametrize(("channels", "colors"), [(1, 64), (3, 256)])
def test_color_photographs_keep_many_colors(folder: Path, channels: int, colors: int) -> None:
    noise = torch.rand(6, 16, channels, 32, 32, generator=torch.Generator().manual_seed(0))
    figures.save(figures.contact_sheet(noise)[0], "toy", {}, "Noise.")
    with Image.open(folder / "toy.png") as picture:
        assert colors / 2 < len(picture.getcolors()) <= colors


def test_a_picture_that_cannot_be_made_small_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "MAX_BYTES", 1000)
    with pytest.raises(ValueError, match="kB at 80 dpi and 32 colors, above 1 kB: make it smaller"):
        figures.save(line(), "toy", {}, "A line.")
    assert not folder.exists()


def test_a_figure_that_cannot_be_made_is_the_committed_one(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dmlkit, "ROOT", tmp_path)
    saved = figures.save(line(), "toy", {"n": 5}, "A line.", "It rises.")
    committed = json.loads((folder / "toy.json").read_text())
    monkeypatch.setenv("DMLKIT_FIGURES", str(tmp_path / "run"))
    assert repr(kept := figures.kept("toy")) == repr(saved)
    assert kept._repr_png_() == saved._repr_png_()
    found = json.loads((tmp_path / "run" / "toy.json").read_text())
    assert found["provenance"].pop("made") is False
    assert found == committed


def test_a_recorded_run_gives_its_numbers_without_marks(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("dmlkit.ROOT", tmp_path)
    evidence = tmp_path / "data" / "evidence"
    evidence.mkdir(parents=True)
    drawn = {"scores": {"SEC": figures.sample([1.0, 3.0])}, "floor": figures.example({"raw": 2.0})}
    figures.save(plt.figure(), "99_sweep", drawn, alt="A.")
    (evidence / "99_sweep.json").write_bytes((folder / "99_sweep.json").read_bytes())
    numbers, made = figures.recorded("99_sweep")
    assert numbers["scores"]["SEC"].tolist() == [1.0, 3.0]
    assert numbers["floor"] == {"raw": 2.0}
    assert made["seeds"] == figures.provenance["seeds"]


def test_curve_draws_the_mean_and_its_t_interval(folder: Path) -> None:
    values = np.array([[0.2, 0.5], [0.4, 0.5], [0.6, 0.5]])
    fig, axes = plt.subplots()
    numbers = figures.curve(axes, [10, 20], values, "triplet", color="black")
    low, high = stats.t.interval(0.95, 2, 0.4, stats.sem(values[:, 0]))
    assert numbers["n"] == 3
    np.testing.assert_allclose(numbers["mean"], [0.4, 0.5])
    np.testing.assert_allclose(numbers["low"], [low, 0.5])
    np.testing.assert_allclose(numbers["high"], [high, 0.5])
    np.testing.assert_allclose(axes.lines[0].get_ydata(), [0.4, 0.5])
    assert len(axes.collections) == 1
    figures.save(fig, "toy", {"triplet": numbers}, "A curve.")  # what it returns can be saved


def test_curve_of_one_seed_claims_no_interval(folder: Path) -> None:
    _, axes = plt.subplots()
    numbers = figures.curve(axes, [10, 20], [[0.2, 0.5]], "triplet")
    assert numbers.keys() == {"x", "values", "mean", "n"}
    assert not axes.collections


def test_a_curve_without_points_is_refused(folder: Path) -> None:
    _, axes = plt.subplots()
    with pytest.raises(ValueError, match=r"values must be \(S, P\), .* but are \(2, 0\)"):
        figures.curve(axes, [], np.empty((2, 0)), "triplet")


@pytest.mark.parametrize("upright", [False, True])
def test_dots_draw_mean_and_interval_of_every_row(folder: Path, upright: bool) -> None:
    fig, axes = plt.subplots()
    rows = {"SEC": [0.01, 0.03, 0.02], "one": [0.5]}
    kept = figures.dots(axes, rows, "arm", shift=0.1, upright=upright, every=True)
    low, high = stats.t.interval(0.95, 2, 0.02, stats.sem(rows["SEC"]))
    assert kept["SEC"] == {
        "values": [0.01, 0.03, 0.02], "mean": pytest.approx(0.02), "n": 3,
        "low": pytest.approx(low), "high": pytest.approx(high),
    }  # fmt: skip
    assert kept["one"] == {"values": [0.5], "mean": 0.5, "n": 1}
    (bars,) = axes.collections
    bar = bars.get_segments()[0]  # its two ends
    along, across = (1, 0) if upright else (0, 1)
    np.testing.assert_allclose(bar[:, along], [low, high])
    np.testing.assert_allclose(bar[:, across], 0.1)
    every = axes.lines[0].get_data()
    np.testing.assert_allclose(every[along], rows["SEC"])
    names = axes.get_xticklabels() if upright else axes.get_yticklabels()
    assert [name.get_text() for name in names] == ["SEC", "one"]
    assert axes.get_legend_handles_labels()[1] == ["arm"]
    figures.save(fig, "toy", kept, "Two rows.")  # what it returns can be saved


def test_letters_and_bare_axes(folder: Path) -> None:
    _, axes = plt.subplots()
    figures.bare(axes, "a map")
    figures.letter(axes, "a  untrained")
    assert (axes.get_title(), axes.get_title("left")) == ("a map", "a  untrained")
    assert not [*axes.get_xticks(), *axes.get_yticks()]


@pytest.mark.parametrize("channels", [1, 3])
def test_contact_sheet_puts_every_picture_in_its_place(folder: Path, channels: int) -> None:
    images = torch.arange(6, dtype=torch.uint8).mul(40).reshape(2, 3, 1, 1, 1)
    images = images.expand(2, 3, channels, 5, 4)  # picture (r, k) is all 40 · (3r + k)
    _, axes = figures.contact_sheet(images, rows=["first", "second"], columns=["a", "b", "c"])
    sheet = np.asarray(axes.images[0].get_array())
    rows = [round(y) for y in axes.get_yticks()]
    columns = [round(x) for x in axes.get_xticks()]
    centers = sheet[np.ix_(rows, columns)]  # (2, 3, 3)
    expected = np.array([[0, 40, 80], [120, 160, 200]]) / 255
    np.testing.assert_allclose(centers, expected[..., None].repeat(3, -1), atol=1e-6)


def test_the_layout_of_a_saved_figure_rests(folder: Path) -> None:
    rows, columns = ["a long name of a row", "second", "third"], ["first", *"bcdef"]
    fig, axes = figures.contact_sheet(torch.rand(3, 6, 1, 32, 32), rows, columns)
    figures.save(fig, "toy", {}, "Noise with names.")
    saved = axes.get_position().bounds
    for _ in range(2):  # of which the first alone would move it by a hundredth of the height
        fig.savefig(folder / "again.png", dpi=150)
    np.testing.assert_allclose(axes.get_position().bounds, saved, rtol=0, atol=1e-3)


def test_neighbors_frame_right_and_wrong_differently(folder: Path) -> None:
    found = torch.zeros(1, 3, 1, 8, 8)
    fig = figures.neighbors(found[:, 0], found, [[True, False, True]])
    axes = fig.axes[0]
    frames = [(patch.get_edgecolor(), patch.get_linestyle()) for patch in axes.patches]
    assert len(frames) == 3
    assert frames[0] == frames[2]
    assert frames[0][0] != frames[1][0]
    assert frames[0][1] != frames[1][1]
    assert len(axes.lines) == 1  # the cross of the wrong one
