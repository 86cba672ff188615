"""What lesson 06 draws, and its interval."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from dmlkit import data, figures
from dmlkit.data.batches import PK
from dmlkit.data.pictures import color_histogram

#: Of the classes of an episode.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")


def episode_of(large: data.ImageSet) -> tuple[Figure, dict[str, int]]:
    """Four products: two photographs of support and two queries each, and all of them by color."""
    rows = PK(large.labels, classes=4, per_class=4, seed=14)(step=0).reshape(4, 4)
    names = [large.class_names[k].replace("-", "\n") for k in large.labels[rows[:, 0]]]
    fig, sheet = figures.contact_sheet(
        large.images[rows], names, ["support", "support", "query", "query"]
    )
    fig.set_size_inches(6.1, 2.6)
    fig.set_layout_engine("none")
    sheet.set_position((0.12, 0.02, 0.44, 0.9))
    x = color_histogram(large.images[rows.flatten()])
    x = x - x.mean(dim=0)
    support, queries = (x @ torch.linalg.svd(x)[2][:2].T).view(4, 4, 2).chunk(2, dim=1)
    c = support.mean(dim=1)
    nearest = torch.cdist(queries, c).argmin(dim=2)  # (4, 2)
    right = int((nearest == torch.arange(4)[:, None]).sum())
    axes = fig.add_axes((0.6, 0.02, 0.39, 0.88))
    for k, color in enumerate(COLORS):
        sheet.get_yticklabels()[k].set(color=color, weight="bold", fontsize=8)
        axes.plot(*support[k].T, "-o", color=color, ms=8, lw=1, mfc="none", mew=1.6, zorder=7)
        axes.plot(*c[k], "*", color=color, ms=11, mec="black", mew=0.7, zorder=5)
        axes.plot(*queries[k].T, "D", color=color, ms=4, mec="black", mew=0.6, zorder=6)
        for f, to in zip(queries[k], nearest[k], strict=True):
            axes.plot(*torch.stack([f, c[to]]).T, ":", color="0.2", lw=1.3)
            if to != k:
                axes.plot(*f, "o", color="black", ms=13, mfc="none", mew=1.6, zorder=8)
    axes.set(aspect="equal", title=f"by colors alone: {right} of 8 right")
    axes.set_axis_off()
    axes.margins(0.08)
    keys = {"support": ("o", "none", 7), "prototype": ("*", "0.5", 10), "query": ("D", "0.5", 4)}
    keys["wrong query"] = ("o", "none", 12)
    for name, (mark, face, size) in keys.items():
        axes.plot([], [], mark, mfc=face, mec="black", ms=size, label=name)
    axes.legend(fontsize=7.5, loc="upper left", bbox_to_anchor=(-0.02, 0.99), labelspacing=0.6)
    return fig, {"classes": 4, "support": 2, "query": 2, "right": right}


def force(s: Tensor, f: Tensor, felt: Mapping[str, Sequence[Tensor]]) -> Figure:
    """A query, what each place counts as the width of a line, and the force on it, in two ways."""
    fig, panels = plt.subplots(1, 2, figsize=(6.5, 2.9), sharex=True, sharey=True)
    heads = {"mean": "mean: both own images count", "neighbors": "neighbors: the near one counts"}
    props = {"arrowstyle": "-|>", "shrinkA": 0, "shrinkB": 0, "mutation_scale": 14, "color": "k"}
    for axes, (way, (pull, own, expected, share)) in zip(panels, felt.items(), strict=True):
        at = s.mean(dim=1) if way == "mean" else s.flatten(0, 1)
        for place, part, k in zip(
            at, share, [i * 3 // len(at) for i in range(len(at))], strict=True
        ):
            width = max(16 * float(part), 0.6)
            axes.plot(*torch.stack([f, place]).T, color=COLORS[k], lw=width, alpha=0.3)
        for k in range(3):
            axes.plot(*s[k].T, "-o" if way == "mean" else "o", color=COLORS[k], ms=7, lw=1.2)
            if way == "mean":
                axes.plot(*at[k], "*", color=COLORS[k], ms=14, mec="black", mew=0.7, zorder=5)
        for name, place, shift in zip(
            ("class 0", "class 1", "class 2"), (s[0, 0], s[1, 1], s[2, 1]),
            ((-9, -4), (9, -4), (9, -4)), strict=True,
        ):  # fmt: skip
            side, k = "right" if shift[0] < 0 else "left", int(name[-1])
            axes.annotate(
                name, place.tolist(), shift, textcoords="offset points", color=COLORS[k], ha=side
            )
        dashed = axes.annotate(
            "", own.tolist(), expected.tolist(), zorder=8,
            arrowprops=props | {"ls": "--", "lw": 1.4},
        )  # fmt: skip
        assert dashed.arrow_patch is not None
        axes.annotate(
            "", (f + pull / 2).tolist(), f.tolist(), zorder=8, arrowprops=props | {"lw": 2.4}
        )
        axes.plot(*expected, "o", ms=8, mfc="white", mec="black", zorder=9)
        axes.plot(*f, "D", color="black", ms=7)
        axes.annotate("query", f.tolist(), (9, -4), textcoords="offset points")
        axes.annotate(
            "expected", expected.tolist(), (-2, 9), textcoords="offset points", ha="center",
            fontsize=9,
        )  # fmt: skip
        axes.set(aspect="equal", xlim=(-1.1, 3.0), ylim=(-1.1, 2.7))
        axes.set_axis_off()
        axes.set_title(heads[way], fontweight="bold", fontsize=10)
    return fig


def summary(d: np.ndarray) -> dict[str, Any]:
    """The mean over networks and characters, (S, 100); the interval draws both anew."""
    rng = np.random.default_rng(0)
    drawn = [
        d[rng.integers(len(d), size=len(d))][:, rng.integers(100, size=100)].mean()
        for _ in range(2000)
    ]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return figures.sample(d.mean(axis=1), mean=d.mean(), low=low, high=high)


def answer(
    right: Mapping[str, Mapping[str, Mapping[int, np.ndarray]]],
    floors: Mapping[str, Mapping[int, float]],
) -> tuple[Figure, dict[str, Any]]:
    """Right answers over the number of images, and paired differences with their intervals.

    ``right`` has, by training, test and number of images, percent by network and character.
    """
    fig, (left, side) = plt.subplots(1, 2, figsize=(6.5, 3.5), width_ratios=(1.2, 1))
    hue = figures.look("prototypical").color
    looks = {
        "mean": (hue, "-", "o", 2.4), "neighbors": (figures.WRONG, "-", "s", 1.8),
        "mean distance": ("0.35", "--", "^", 1.3), "nearest image": ("0.35", "-.", "v", 1.3),
    }  # fmt: skip
    numbers = sorted(right["mean"]["mean"])
    ends: dict[str, tuple[float, str]] = {}
    for test, (color, ls, mark, lw) in looks.items():
        y = [float(right["mean"][test][n].mean()) for n in numbers]
        left.plot(numbers, y, color=color, ls=ls, marker=mark, ms=4.5, lw=lw)
        ends[test] = y[-1], color
    for name, floor in floors.items():
        left.plot(numbers, [floor[n] for n in numbers], ":", color="0.55", lw=1.5)
        ends[name] = floor[numbers[-1]], "0.45"
    left.set_xscale("log")
    left.minorticks_off()
    left.set(xlim=(0.9, 62), ylim=(0, 57), xticks=numbers, xticklabels=numbers)
    left.set(xlabel="images of a new class, n", ylabel="right (%)")
    said = {"neighbors": "neighbors, best T", "pixels": "pixels, mean",
            "untrained": "untrained, mean"}  # fmt: skip
    place = -10.0
    for name, (y_end, color) in sorted(ends.items(), key=lambda item: item[1][0]):
        place = max(y_end, place + 3.6)
        weight = "bold" if name == "mean" else "normal"
        left.text(
            11.4, place, said.get(name, name), color=color, fontsize=8, va="center", weight=weight
        )
    gain = {
        f"{how}, {n}": summary(right[how]["mean"][n] - right[how]["neighbors"][n])
        for how in right
        for n in numbers[1:]
    }
    scatter = {
        n: summary(right["mean"]["mean"][n] - right["mean"]["mean distance"][n])
        for n in numbers[1:]
    }
    at = [0, 1, 2, 4, 5, 6, 8]
    for place, (name, row) in zip(at, [*gain.items(), ("scatter", scatter[5])], strict=True):
        color = hue if name.startswith("mean") else "0.4"
        side.plot([row["low"], row["high"]], [place, place], color=color, lw=2.4)
        side.plot(row["mean"], place, "o", color=color, ms=7)
        side.text(row["high"] + 0.4, place, f"{row['mean']:+.1f}".replace("-", "−"),
                  color=color, va="center", fontsize=9)  # fmt: skip
    titles = "mean − neighbors", "the same, trained as neighbors", "mean − mean distance"
    for place, title in zip((-0.9, 3.1, 7.1), titles, strict=True):
        side.text(-3.2, place, title, fontsize=8.5, va="center", weight="bold",
                  bbox={"fc": "white", "lw": 0, "pad": 1.5})  # fmt: skip
    side.axvline(0, color="0.3", lw=1)
    side.set_yticks(at, [*(f"n = {n}" for n in 2 * numbers[1:]), "n = 5"])
    side.set(ylim=(8.6, -1.5), xlim=(-3.3, 11), xlabel="points of right answers")
    side.grid(False, axis="y")
    by_mean = right["mean"]
    change = (by_mean["mean"][10] - by_mean["neighbors"][10]) - (
        by_mean["mean"][5] - by_mean["neighbors"][5]
    )
    drawn: dict[str, Any] = {
        "right": {
            test: {n: figures.sample(each.mean(axis=1)) for n, each in by_n.items()}
            for test, by_n in by_mean.items()
        },
        "gain": gain, "scatter": scatter, "ten minus five": summary(change),
        "floor": {name: figures.example({f"{n}": v for n, v in floor.items()})
                  for name, floor in floors.items()},
    }  # fmt: skip
    return fig, drawn
