"""What figures are made of: numbers with marks, means with their intervals, sheets of pictures."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike
from torch import Tensor

from dmlkit import statistics
from dmlkit.data.images import to_float
from dmlkit.figures.looks import LOOKS

#: Width of a figure that fills a page's text, in inches.
WIDTH = 6.5
#: Blue and vermilion: told apart under every common form of color blindness.
RIGHT, WRONG = "#0072b2", "#d55e00"

#: Of a difference, so many repetitions are dots; more would be a cloud.
MANY = 20

_DASHED = (0, (2, 1))
_GAP = 3  # pixels between the images of a sheet


def sample(values: ArrayLike, **about: Any) -> dict[str, Any]:
    """Mark random numbers by repetition, (R, ...): ``--check`` compares two sets of them.

    What is ``about`` them (the x axis, names of the columns) is exact, and kept beside; so are
    ``mean``, ``low`` and ``high`` over the repetitions and ``n``.

    >>> sample([0.5, 0.75], arm="SEC")
    {'values': [0.5, 0.75], 'arm': 'SEC'}
    """
    return {"values": (np.asarray(values) * 1).tolist(), **about}


def timing(value: Any) -> dict[str, Any]:
    """Mark numbers that a clock gave: ``--check`` compares their order of magnitude.

    >>> timing(0.002)
    {'timing': 0.002}
    """
    return {"timing": value}


def example(value: Any) -> dict[str, Any]:
    """Mark what one draw happened to give, shown as an example: ``--check`` wants it to be there.

    >>> example(3)
    {'example': 3}
    """
    return {"example": value}


def kind(value: Any) -> str:
    """How ``--check`` compares a part of a record: sample, timing, example, claim or plain.

    >>> kind(timing(2.0)), kind({"mean": 0.5})
    ('timing', 'plain')
    """
    if not isinstance(value, dict):
        return "plain"
    if {"claim", "condition"} <= value.keys():
        return "claim"
    if value.keys() in ({"timing"}, {"example"}):
        return next(iter(value))
    return "sample" if "values" in value else "plain"


def parts(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """What a dict, list or tuple holds, each under its key; of anything else nothing.

    >>> list(parts([0.5, 0.75], "recall"))
    [('recall/0', 0.5), ('recall/1', 0.75)]
    """
    if isinstance(value, dict | list | tuple):
        for name, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield f"{key}/{name}" if key else str(name), part


def curve(axes: Axes, x: ArrayLike, values: ArrayLike, label: str, **style: Any) -> dict[str, Any]:
    """Draw the mean over seeds with its 95 % t-interval as a band: x (P,), values (S, P).

    Returns the numbers drawn (x, mean, the interval's low and high, n seeds) for ``save``. A single
    seed has neither band nor interval. Raises ValueError where there is nothing to draw.
    """
    drawn = np.asarray(values)
    if drawn.ndim != 2 or not drawn.size:
        raise ValueError(f"values must be (S, P), S and P from 1, but are {drawn.shape}")
    table = pd.DataFrame(drawn).apply(statistics.interval)  # (mean low high n, P)
    mean, n = table.loc["mean"], int(table.loc["n"].iloc[0])
    numbers = {"x": np.asarray(x), "values": drawn, "mean": mean, "n": n}
    look: dict[str, Any] = {"marker": "o", "markersize": 3.5} | style
    (line,) = axes.plot(x, mean, label=label, **look)
    if n > 1:
        ends = {"low": table.loc["low"], "high": table.loc["high"]}
        axes.fill_between(x, *ends.values(), color=line.get_color(), alpha=0.2, lw=0)
        numbers |= ends
    return numbers


def gains(
    axes: Axes,
    values: Mapping[str, ArrayLike],
    unit: str = "points of Recall@1",
    overlap: float = 0.0,
) -> dict[str, Any]:
    """Draw the differences that answer a lesson, {label: (n,)}, the one that is asked for first.

    A small dot is a repetition, unless there are more than 20 (``MANY``), and a bar the 95 %
    t-interval of the mean; the numbers stand in the right margin. Repetitions that share training
    classes have an ``overlap``, as in ``statistics.interval``. Returns a ``sample`` for each label,
    with mean, low, high and n.

    >>> _, axes = plt.subplots()
    >>> gains(axes, {"8 × 8 − 32 × 2": [1.0, 3.0]})["8 × 8 − 32 × 2"]["mean"]
    2.0
    """
    found = {label: summary(each, overlap) for label, each in values.items()}
    spans(axes, found, unit)
    return {label.replace("\n", " "): each for label, each in found.items()}


def spans(axes: Axes, rows: Mapping[str, Mapping[str, Any]], unit: str) -> None:
    """Draw differences whose intervals are known: {label: mean, low, high, maybe values}.

    >>> _, axes = plt.subplots()
    >>> spans(axes, {"SEC": {"mean": 1.0, "low": 0.5, "high": 1.5}}, "points")
    >>> axes.texts[0].get_text()
    '+1.0\\n[0.5, 1.5]'
    """
    axes.axvline(0, color="0.3", lw=1, zorder=1)
    for place, row in enumerate(rows.values()):
        ink, first = RIGHT if place == 0 else "0.35", place == 0
        ends = [row.get("low", row["mean"]), row.get("high", row["mean"])]
        dots = row.get("values", [])
        if len(dots) <= MANY:
            shift = np.linspace(0.16, 0.34, len(dots))
            axes.plot(dots, place + shift, ".", ms=4, color=ink, alpha=0.5, mew=0)
        axes.plot(ends, [place, place], color=ink, lw=7 if first else 3.5, alpha=0.45, zorder=2)
        axes.plot(row["mean"], place, "o", ms=9 if first else 6, color=ink, zorder=3)
        mean, low, high = (f"{x.round(1) + 0.0:.1f}" for x in np.array([row["mean"], *ends]))
        said = f"{'' if mean[0] == '-' else '+'}{mean}\n[{low}, {high}]".replace("-", "−")
        style: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "va": "center"}
        weight = "bold" if first else "normal"
        axes.text(1.03, place, said, color=ink, fontsize=9, fontweight=weight, **style)
    axes.set_yticks(range(len(rows)), [*rows])
    axes.set(ylim=(len(rows) - 0.45, -0.55), xlabel=unit)
    axes.grid(False, axis="y")


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
    drawn: dict[str, Any] = {"marker": "o", "color": RIGHT, "ms": 4.5, "lw": 1.2, "ls": ""} | style
    found = {name: summary(values) for name, values in rows.items()}
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


def summary(values: ArrayLike, overlap: float = 0.0) -> dict[str, Any]:
    """A ``sample`` (n,) with its mean and n, and the ends of the 95 % interval if n is above 1.

    Repetitions that share training classes have an ``overlap``, as in ``statistics.interval``.

    >>> summary([1.0, 2.0, 3.0])["mean"]
    2.0
    """
    kept = sample(values)
    mean, low, high, n = statistics.interval(kept["values"], overlap=overlap)
    kept |= {"mean": float(mean), "n": int(n)}
    return kept | {"low": float(low), "high": float(high)} if n > 1 else kept


def letter(axes: Axes, name: str) -> None:
    """Write a panel's letter, and what follows it, above its left edge."""
    axes.set_title(name, loc="left", fontweight="bold")


def bare(axes: Axes, title: str = "", **style: Any) -> None:
    """Take the ticks off axes whose coordinates have no meaning; a small title, if any."""
    axes.set(xticks=[], yticks=[])
    axes.set_title(title, fontsize=8, **style)


def contact_sheet(
    images: Tensor, rows: Sequence[str] = (), columns: Sequence[str] = ()
) -> tuple[Figure, Axes]:
    """Lay out pictures in rows: (R, K, C, H, W) uint8, or float in 0..1, C either 1 or 3.

    ``rows`` and ``columns`` name them. One pixel of the axes is one pixel of a picture.
    """
    R, K, _, H, W = images.shape
    pixels = to_float(images.cpu()).float()
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
    marks, (H, W) = np.asarray(right, dtype=bool), found.shape[-2:]
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


def sweep(
    axes: Axes,
    scores: Mapping[Any, ArrayLike],
    floor: Mapping[str, float],
    color: str = RIGHT,
    unit: str = " %",
    digits: int = 0,
) -> dict[str, Any]:
    """Draw what a sweep found: scores {setting: (seeds,)}, settings side by side, as they come.

    A dot is a training, a thick dash the mean of a setting, which is written above it with its
    ``unit`` and ``digits``. Dotted lines are what needs no training, {name: score}. Returns a
    ``sample`` for each setting, and the floor.

    >>> _, axes = plt.subplots()
    >>> sweep(axes, {0.0: [60, 62], 0.3: [63, 65]}, {"raw pixels": 20.0})["scores"]["0.3"]["values"]
    [63, 65]
    """
    found = {}
    for place, (setting, values) in enumerate(scores.items()):
        each = np.asarray(values, float)
        axes.plot([place] * len(each), each, "o", color=color, alpha=0.5, ms=4.5, mew=0)
        axes.plot([place - 0.2, place + 0.2], [each.mean()] * 2, color=color, lw=2.5)
        said = f"{each.mean().round(digits) + 0.0:.{digits}f}{unit}".replace("-", "−")  # no −0
        ground = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5}
        style: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "bbox": ground}
        axes.annotate(said, (place, each.max()), (0, 6), **style)  # legible on a dotted line
        found[f"{setting}"] = sample(values)
    end = len(scores) - 0.45
    near = 0.06 * max([*map(np.max, scores.values()), *floor.values()])  # their words would meet
    for name, value in floor.items():
        look = LOOKS[name].color if name in LOOKS else "0.5"
        axes.axhline(value, color=look, ls=":", lw=1.4, zorder=0)
        gaps = [value - other for other in floor.values() if 0 < abs(value - other) < near]
        va = "center" if not gaps else "bottom" if max(gaps) > 0 else "top"
        axes.text(end, value, f" {name}", va=va, fontsize=8, color="0.35")
    axes.set(xlim=(-0.55, end), xticks=range(len(scores)), xticklabels=[f"{s}" for s in scores])
    axes.margins(y=0.15)
    axes.grid(False, axis="x")
    return {"scores": found, "floor": example(dict(floor))}
