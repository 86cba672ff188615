"""One look for every figure, and each figure kept as a PNG with its numbers beside it."""

import base64
import html
import io
import json
import os
import platform
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path, PureWindowsPath
from types import NoneType
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
import torch
from matplotlib.animation import Animation, PillowWriter
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike, NDArray
from PIL import Image
from torch import Tensor

import dmlkit
from dmlkit import numerics, study
from dmlkit.checks import as_numbers, check_flag, check_range, check_type
from dmlkit.data import ImageSet
from dmlkit.files import write_whole
from dmlkit.looks import ARMS, LOOKS, RECALL_AXIS, Look, look
from dmlkit.records import (
    digest,
    example,
    file_hash,
    inconsistent,
    is_absolute,
    picture,
    plain,
    sample,
    timing,
)

#: Width of a figure that fills a page's text, in inches.
WIDTH = 6.5
#: The largest PNG that is kept, in bytes.
MAX_BYTES = 150_000
#: The largest GIF that is kept beside it.
MAX_FILM_BYTES = 600_000
#: Blue and vermilion: told apart under every common form of color blindness.
RIGHT, WRONG = "#0072b2", "#d55e00"

_DASHED = (0, (2, 1))
_GAP = 3  # pixels between the images of a sheet
_LIBRARIES = (
    *("dmlkit", "torch", "torchvision", "numpy", "scipy", "pandas", "scikit-learn"),
    *("faiss-cpu", "umap-learn", "matplotlib", "seaborn"),
)
# Tried in turn until the PNG is small enough: (dots per inch, colors). With a palette of 256 a
# picture looks the same in half of the bytes, and the notebooks keep each picture once more.
_QUALITIES = ((150, 256), (150, 64), (120, 64), (100, 64), (100, 32), (80, 32))

_LOOK = {
    "figure.constrained_layout.use": True,
    "figure.figsize": (WIDTH, 3.6),
    "figure.dpi": 100,
    "image.cmap": "cividis",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "grid.linewidth": 0.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
}

__all__ = [
    "ARMS", "LOOKS", "MAX_BYTES", "RECALL_AXIS", "RIGHT", "WIDTH", "WRONG", "Look", "SavedFigure",
    "bare", "begin_notebook", "contact_sheet", "curve", "differences", "dots", "example", "letter",
    "live", "look", "neighbors", "sample", "save", "timing", "versions",
]  # fmt: skip

provenance: dict[str, Any] | None = None


@dataclass(frozen=True)
class SavedFigure:
    """A figure on disk; a notebook shows it with its alt text and caption."""

    name: str
    alt: str
    caption: str
    png: bytes
    width: float  # inches

    def __repr__(self) -> str:
        return f"Figure {self.name}: {self.alt}"

    def _repr_png_(self) -> tuple[bytes, dict[str, Any]]:
        """The picture, and what a notebook that is kept has to know of it (``course.outputs``)."""
        return self.png, {"alt": self.alt, "figure": self.name, "width": round(96 * self.width)}

    def _repr_html_(self) -> str:
        image = _image(self.png, self.alt, f"width: {self.width:.2f}in; ")
        return f"<figure>{image}<figcaption>{html.escape(self.caption)}</figcaption></figure>"


def live(fig: Figure, alt: str) -> str:
    """A figure as HTML, in its own size, for an ``ipywidgets.HTML`` that knobs redraw.

    The figure is closed.

    >>> live(plt.figure(), "Nothing yet.").startswith("<img src=")
    True
    """
    check_type(Figure, fig=fig)
    check_type(str, alt=alt)
    file = io.BytesIO()
    fig.savefig(file, format="png")
    plt.close(fig)
    return _image(file.getvalue(), alt)


def _image(png: bytes, alt: str, style: str = "") -> str:
    source = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    style += "max-width: 100%; background: white"
    return f'<img src="{source}" alt="{html.escape(alt)}" style="{style}">'


def begin_notebook(
    notebook: str, *, profile: str, seeds: int | Sequence[int], device: str, **parameters: Any
) -> None:
    """Set the one look of every figure, and say where the figures to come are from.

    Called once at the top of a notebook, with its name and all of its parameters. An absolute path
    among the parameters keeps only its last part, so that figures do not depend on the machine.

    >>> begin_notebook("00_start_here", profile="smoke", seeds=3, device="cpu", steps=300)
    """
    global provenance
    check_type(str, notebook=notebook, profile=profile, device=device)
    sns.set_theme("paper", "whitegrid", "colorblind", font="DejaVu Sans", rc=_LOOK)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    given = {  # a Windows path splits at / and at \
        key: PureWindowsPath(value).name if isinstance(value, str) and is_absolute(value) else value
        for key, value in parameters.items()
    }
    provenance = {
        "notebook": notebook,
        "profile": profile,
        "seeds": seeds,
        "device": device,
        "parameters": dict(plain(given, "parameters")),
    }


def save(
    fig: Figure,
    name: str,
    data: Mapping[str, Any] | pd.DataFrame,
    alt: str,
    caption: str = "",
    datasets: Mapping[str, ImageSet] | None = None,
    film: Animation | None = None,
) -> SavedFigure:
    """Keep a figure as ``NAME.png`` with its numbers and provenance in ``NAME.json``.

    The folder is ``$DMLKIT_FIGURES``, else ``build/<profile>/figures``. The figure is closed; show
    the returned object instead, which carries the alt text and the caption.

    ``data`` holds the numbers drawn: scalars, strings, lists, arrays, tensors and data frames,
    nested as you like. They are kept to six significant digits. NaN, infinity and absolute paths
    are refused; ``None`` says that there is no value.

    ``dmlkit reproduce --check`` takes plain numbers for exact. Mark what is not: random numbers by
    ``sample`` (or draw them with ``curve`` and ``differences``), times by ``timing``, what one draw
    happened to give by ``example``. ``data["claims"]`` is a list of ``claims.Verdict.facts()``.

    A ``film`` of the same numbers is kept beside it as ``NAME.gif``, five frames a second.

    Equal input gives equal bytes. A PNG above 150 kB is stored with fewer colors or pixels; where
    that does not suffice, and for a film above 600 kB, ``ValueError``.
    """
    check_type(Figure, fig=fig)
    check_type(str, name=name, alt=alt, caption=caption)
    check_type(Mapping, pd.DataFrame, data=data)
    check_type(Mapping, NoneType, datasets=datasets)
    check_type(ImageSet, **{f"datasets[{key!r}]": each for key, each in (datasets or {}).items()})
    check_type(Animation, NoneType, film=film)
    record = _record(name, data, alt, caption, datasets or {})
    _settle(fig)
    png = _png(fig, name)
    record["picture"] = picture(png)
    films = {} if film is None else {f"{name}.gif": _gif(film, name)}
    if films:
        record["film"] = file_hash(films[f"{name}.gif"])
    record["digest"] = digest(record)  # last: of all the rest
    text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    ours = dmlkit.ROOT / "build" / record["provenance"]["profile"] / "figures"
    folder = Path(os.environ.get("DMLKIT_FIGURES") or ours)
    folder.mkdir(parents=True, exist_ok=True)
    contents = {f"{name}.png": png, f"{name}.json": text.encode(), **films}
    write_whole({folder / x: partial(Path.write_bytes, data=b) for x, b in contents.items()})
    width = float(fig.get_figwidth())
    plt.close(fig)  # else the notebook would show it a second time, without its alt text
    return SavedFigure(name, alt, caption, png, width)


def _record(
    name: str, data: Any, alt: str, caption: str, datasets: Mapping[str, ImageSet]
) -> dict[str, Any]:
    """What the JSON of a figure holds; see ``save`` for what is refused."""
    if provenance is None:
        raise RuntimeError("save was called before begin_notebook: call begin_notebook first")
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", name):
        raise ValueError(f"figure name {name!r}: use only a-z, 0-9, _ and -, such as '01_toy'")
    if not alt.strip():
        raise ValueError(f"figure {name!r} has an empty alt text: say in words what it shows")
    numbers = plain(data, "")
    if wrong := list(inconsistent(numbers, "")):
        raise ValueError(f"figure {name!r}: {wrong[0]}")
    return {
        "alt": alt,
        "caption": caption,
        "numbers": numbers,
        "provenance": {
            **provenance,
            "datasets": {key: dataset.fingerprint for key, dataset in datasets.items()},
            "versions": versions(),
            "numerics": numerics.describe(),
        },
    }


def _gif(film: Animation, name: str) -> bytes:
    """A film's frames, one after the other, again and again."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "film.gif"
        film.save(path, PillowWriter(fps=5), dpi=90)
        found = path.read_bytes()
    if len(found) > MAX_FILM_BYTES:
        raise ValueError(f"the film of {name!r} has {len(found)} bytes, above {MAX_FILM_BYTES}")
    return found


def versions() -> dict[str, str]:
    """Versions of Python and of the libraries that numbers and pictures depend on."""
    found = {"python": platform.python_version()}
    for library in _LIBRARIES:
        try:
            found[library] = metadata.version(library)
        except metadata.PackageNotFoundError:  # conda names faiss-cpu otherwise
            continue
    return found


def curve(axes: Axes, x: ArrayLike, values: ArrayLike, label: str, **style: Any) -> dict[str, Any]:
    """Draw the mean over seeds with its 95 % t-interval as a band: x (P,), values (S, P).

    Returns the numbers drawn (x, mean, the interval's low and high, n seeds) for ``save``. A single
    seed has neither band nor interval.
    """
    check_type(Axes, axes=axes)
    check_type(str, label=label)
    at, drawn = np.asarray(x), np.asarray(values)
    if at.ndim != 1 or at.dtype.kind not in "biuf":
        raise ValueError(f"x must be numbers (P,), but is {x!r}")
    right = drawn.ndim == 2 and drawn.shape[1] == len(at) and drawn.dtype.kind in "biuf"
    if not right or not len(drawn) or not np.isfinite(drawn).all():
        raise ValueError(f"values must be finite numbers (S, {len(at)}), but are {values!r}")
    table = pd.DataFrame(drawn).apply(study.interval)  # (mean low high n, P)
    numbers = {
        "x": at,
        "values": drawn,
        "mean": table.loc["mean"],
        "n": int(table.loc["n"].iloc[0]),
    }
    look: dict[str, Any] = {"marker": "o", "markersize": 3.5} | style
    (line,) = axes.plot(x, numbers["mean"], label=label, **look)
    if numbers["n"] > 1:
        numbers |= {"low": table.loc["low"], "high": table.loc["high"]}
        axes.fill_between(
            x, numbers["low"], numbers["high"], color=line.get_color(), alpha=0.2, lw=0
        )
    return numbers


def differences(
    axes: Axes,
    values: Mapping[str, ArrayLike],
    unit: str | None = None,
    margin: float | None = None,
) -> dict[str, Any]:
    """Draw paired differences, {label: (n,)}: a row of dots for each label, with its mean.

    One dot is one repetition, the bar the 95 % t-interval of the mean. The line at 0 says "no
    difference", and the band of ± ``margin``, where one is given, "none that matters"; ``unit``
    names the x axis. Returns a ``sample`` for each label, with mean, low, high and n.

    >>> _, axes = plt.subplots()
    >>> differences(axes, {"SEC": [1.0, 3.0]}, "points")["SEC"]["mean"]
    2.0
    """
    check_type(Axes, axes=axes)
    check_type(Mapping, values=values)
    check_type(str, NoneType, unit=unit)
    if margin is not None:
        check_range(0, margin=margin)
    found: dict[str, Any] = {}
    axes.axvline(0, color="0.3", lw=1, zorder=1)
    if margin is not None:
        axes.axvspan(-margin, margin, color="0.5", alpha=0.15, lw=0, zorder=0)
    for row, (label, x) in enumerate(values.items()):
        kept = sample(_row(x, f"values[{label!r}]"))
        mean, low, high, n = study.interval(kept["values"])
        found[label] = kept | {"mean": float(mean), "n": int(n)}
        axes.plot(kept["values"], [row] * int(n), "o", ms=3, color="0.55", zorder=2)
        (dot,) = axes.plot(mean, row, "D", ms=5, color=RIGHT, zorder=4)
        if n > 1:
            found[label] |= {"low": float(low), "high": float(high)}
            axes.plot([low, high], [row, row], color=dot.get_color(), lw=2, zorder=3)
    axes.set_yticks(range(len(found)), [f"{label} (n = {f['n']})" for label, f in found.items()])
    axes.set_ylim(len(found) - 0.5, -0.5)
    axes.grid(False, axis="y")
    if unit is not None:
        axes.set_xlabel(unit)
    return found


def dots(
    axes: Axes,
    rows: Mapping[str, ArrayLike],
    label: str = "",
    shift: float = 0.0,
    upright: bool = False,
    every: bool = False,
    **style: Any,
) -> dict[str, dict[str, Any]]:
    """Draw mean and 95 % t-interval of rows of values, {name: (n,)}, one below the other.

    ``upright`` puts them side by side, ``every`` draws each repetition too, and ``shift`` moves all
    marks of one call, so that several arms fit beside each other. A name that is a loss or an arm
    is written as in ``LOOKS``. Returns a ``sample`` for each row, with mean, low, high and n.

    >>> _, axes = plt.subplots()
    >>> found = dots(axes, {"SEC": [1.0, 3.0], "none": [0.0, 1.0]}, "points", color="black")
    >>> found["SEC"]["mean"], [label.get_text() for label in axes.get_yticklabels()]
    (2.0, ['SEC', 'no constraint'])
    """
    check_type(Axes, axes=axes)
    check_type(Mapping, rows=rows)
    check_type(str, label=label)
    check_range(shift=shift)
    check_flag(upright=upright, every=every)
    drawn: dict[str, Any] = {"marker": "o", "color": RIGHT, "ms": 4.5, "lw": 1.2, "ls": ""} | style
    found: dict[str, dict[str, Any]] = {}
    for name, values in rows.items():
        mean, *ends, n = study.interval(_row(values, f"rows[{name!r}]"))
        found[name] = sample(values) | {"mean": float(mean), "n": int(n)}
        if n > 1:
            found[name] |= dict(zip(("low", "high"), map(float, ends), strict=True))
    means = np.array([each["mean"] for each in found.values()])
    low, high = (
        [each.get(end, each["mean"]) for each in found.values()] for end in ("low", "high")
    )
    error = (means - low, high - means)
    place = np.arange(len(found)) + shift
    if every:
        faint: dict[str, Any] = {"ms": 4, "color": drawn["color"], "alpha": 0.4}
        for at, each in zip(place, found.values(), strict=True):
            line = [at] * each["n"], each["values"]
            axes.plot(*(line if upright else line[::-1]), ".", **faint)
    if upright:
        axes.errorbar(place, means, yerr=error, label=label, **drawn)
    else:
        axes.errorbar(means, place, xerr=error, label=label, **drawn)
        axes.set_ylim(len(found) - 0.5, -0.5)
        axes.grid(False, axis="y")
    names = [LOOKS[name].name if name in LOOKS else name for name in rows]
    (axes.set_xticks if upright else axes.set_yticks)(range(len(found)), names)
    return found


def _row(values: ArrayLike, name: str) -> NDArray[np.float64]:
    """The finite numbers of one row, at least one."""
    x = as_numbers(values, name)  # type: ignore[arg-type]
    if not len(x) or not np.isfinite(x).all():
        raise ValueError(f"{name} must be finite numbers, one or more, but are {x.tolist()}")
    return x


def letter(axes: Axes, name: str) -> None:
    """Write a panel's letter, and what follows it, above its left edge."""
    check_type(Axes, axes=axes)
    check_type(str, name=name)
    axes.set_title(name, loc="left", fontweight="bold")


def bare(axes: Axes, title: str = "", **style: Any) -> None:
    """Take the ticks off axes whose coordinates have no meaning; a small title, if any."""
    check_type(Axes, axes=axes)
    check_type(str, title=title)
    axes.set(xticks=[], yticks=[])
    axes.set_title(title, fontsize=8, **style)


def contact_sheet(
    images: Tensor, rows: Sequence[str] = (), columns: Sequence[str] = ()
) -> tuple[Figure, Axes]:
    """Lay out pictures in rows: (R, K, C, H, W) uint8, or float in 0..1, C either 1 or 3.

    ``rows`` and ``columns`` name them. One pixel of the axes is one pixel of a picture.
    """
    check_type(Tensor, images=images)
    if images.ndim != 5 or images.shape[2] not in (1, 3) or not images.numel():
        expected = "(rows, columns, 1 or 3, height, width)"
        raise ValueError(f"contact_sheet: images must be {expected}, not {tuple(images.shape)}")
    R, K, _, H, W = images.shape
    for kind, names, count in (("rows", rows, R), ("columns", columns, K)):
        check_type(Sequence, **{kind: names})
        if names and (len(names) != count or not all(isinstance(each, str) for each in names)):
            raise ValueError(f"{kind} must be {count} names or none, but are {names!r}")
    pixels = images.cpu().float() / (1 if images.is_floating_point() else 255)
    sheet = torch.ones(R, H + _GAP, K, W + _GAP, 3)
    sheet[:, :H, :, :W] = pixels.permute(0, 3, 1, 4, 2).expand(R, H, K, W, 3)
    sheet = sheet.reshape(R * (H + _GAP), K * (W + _GAP), 3)[:-_GAP, :-_GAP]
    wide = WIDTH - 0.1 - 0.07 * max(map(len, rows), default=0)  # inches left beside the names
    tall = wide * sheet.shape[0] / sheet.shape[1] + (0.35 if columns else 0.15)
    fig, axes = plt.subplots(figsize=(WIDTH, tall))
    axes.imshow(sheet.clamp(0, 1).numpy())
    axes.set_yticks([r * (H + _GAP) + H / 2 for r in range(len(rows))], rows)
    axes.set_xticks([k * (W + _GAP) + W / 2 for k in range(len(columns))], columns)
    axes.tick_params(length=0, labeltop=True, labelbottom=False)
    axes.grid(False)
    axes.spines[:].set_visible(False)
    return fig, axes


def neighbors(queries: Tensor, found: Tensor, right: ArrayLike, rows: Sequence[str] = ()) -> Figure:
    """Each query with its nearest neighbors: (R, C, H, W), (R, K, C, H, W), right (R, K) bool.

    A neighbor of the query's class has a solid blue frame; any other a dashed one in vermilion and
    a cross, so that the two differ without color as well.
    """
    check_type(Tensor, queries=queries, found=found)
    marks = np.asarray(right, dtype=bool)
    alike = found.ndim == 5 and queries.shape == (*found.shape[:1], *found.shape[2:])
    if not alike or marks.shape != found.shape[:2]:
        shapes = f"{tuple(queries.shape)}, {tuple(found.shape)} and {marks.shape}"
        expected = "(R, C, H, W), (R, K, C, H, W) and (R, K)"
        raise ValueError(f"queries, found and right must be {expected}, but are {shapes}")
    H, W = found.shape[-2:]
    pictures = torch.cat([queries[:, None], found], dim=1)  # (R, 1 + K, C, H, W)
    fig, axes = contact_sheet(pictures, rows, ["query", *map(str, range(1, marks.shape[1] + 1))])
    for (r, k), is_right in np.ndenumerate(marks):
        left, top = (k + 1) * (W + _GAP), r * (H + _GAP)
        style: dict[str, Any] = {"edgecolor": RIGHT if is_right else WRONG, "lw": 2}
        style |= {"ls": "-" if is_right else _DASHED, "fill": False, "clip_on": False}
        axes.add_patch(Rectangle((left - 1, top - 1), W + 1, H + 1, **style))
        if not is_right:
            axes.plot(left + W - 4, top + 4, "x", color=WRONG, ms=6, mew=2)
    cross: dict[str, Any] = {"ls": _DASHED, "marker": "x", "markersize": 6, "markeredgewidth": 2}
    keys = [
        Line2D([], [], color=RIGHT, lw=2, label="same class as the query"),
        Line2D([], [], color=WRONG, lw=2, label="another class", **cross),
    ]
    fig.set_figheight(fig.get_figheight() + 0.3)
    fig.legend(handles=keys, loc="outside lower center", ncols=2)
    return fig


def _settle(fig: Figure) -> None:
    """Draw until the layout rests: beside images, whose shape is fixed, each drawing moves it."""
    before = None
    fig.set_dpi(_QUALITIES[0][0])  # at another resolution words are of another width
    for _ in range(6):
        fig.draw_without_rendering()
        places = [axes.get_position().bounds for axes in fig.axes]
        if before is not None and np.allclose(places, before, rtol=0, atol=5e-4):
            return
        before = places


def _png(fig: Figure, name: str) -> bytes:
    for dpi, colors in _QUALITIES:
        buffer = io.BytesIO()
        fig.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
        picture = Image.open(buffer).convert("RGB").quantize(colors, dither=Image.Dither.NONE)
        buffer = io.BytesIO()
        picture.save(buffer, format="png", optimize=True, dpi=(dpi, dpi))
        if buffer.tell() <= MAX_BYTES:
            return buffer.getvalue()
    raise ValueError(
        f"figure {name!r} is {buffer.tell() // 1000} kB at {dpi} dpi and {colors} colors, above "
        f"{MAX_BYTES // 1000} kB: make it smaller, or draw fewer points or pictures"
    )
