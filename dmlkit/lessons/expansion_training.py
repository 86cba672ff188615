"""What lesson 17 prepares, checks and draws; its features are lesson 16's, too."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Rectangle
from numpy.typing import NDArray
from torch import Tensor, nn

import dmlkit
from dmlkit import data, figures, losses, models, retrieval, statistics
from dmlkit.losses import spherical

Array = NDArray[np.float64]
#: Features of characters to train on, of others, labels of these, Recall@1 of what is untrained.
Bed = tuple[Tensor, Tensor, NDArray[np.int64], dict[str, float]]


def recall(x: Tensor, labels: NDArray[np.int64]) -> float:
    """Recall@1 in percent: (N, d), (N,)."""
    found = retrieval.recall_at_k(x.detach().cpu(), labels, ks=(1,), metric="cosine")
    return 100 * float(found[1])


def characters(k: int, classes: int, shown: int = 20) -> Bed:
    """Features of what repetition k learns (C, m, 384) and searches (N, 384), labels, and floors.

    The features are of a network that learned 300 other characters; ten blocks of 76 characters
    share none. The floors are Recall@1 of raw pixels and of the features' 8 principal components.
    """
    part: dict[str, Any] = {"part": "evaluate", "val_classes": 0, "class_split": k}
    part |= {"train_classes": classes, "per_class": shown, "test_classes": 76}
    train, test = (data.load("glyphs", which, **part) for which in ("train", "test"))
    network = models.ConvNet(64, pretrained=True)
    rest = nn.Sequential(*list(network)[:-1], nn.Flatten()).eval()
    images, unseen = (torch.as_tensor(each.images[:]).float() / 255 for each in (train, test))
    with torch.no_grad():
        X, Z = (torch.cat([rest(some) for some in each.split(1000)]) for each in (images, unseen))
    X, Z = (X - X.mean(dim=0)) / X.std(), (Z - X.mean(dim=0)) / X.std()
    axes = torch.linalg.eigh(X.T @ X).eigenvectors[:, -8:]
    floors = {
        "raw pixels": recall(unseen.flatten(1), test.labels),
        "principal axes (8)": recall(Z @ axes, test.labels),
        "all features (384)": recall(Z, test.labels),
    }
    return X.view(classes, shown, -1), Z, test.labels, floors


def felt(
    turn: Tensor, forces: Callable[[Tensor, str], tuple[Tensor, Tensor]]
) -> tuple[Figure, dict[str, Any]]:
    """Who feels a point, detached and attached, on a circle; with the forces."""
    fig, panels = plt.subplots(1, 2, figsize=(6.5, 2.5))
    names, drawn = ("$x$", r"$\hat q_1$", r"$\hat q_2$"), {}
    titles = "detached: it pushes a proxy", "attached: and pulls its sample"
    for axes, form, title in zip(panels, ("code", "paper"), titles, strict=True):
        by_sample, by_point = forces(turn, form)
        drawn[form] = {"by the sample": by_sample, "by the point": by_point}
        axes.add_patch(Circle((0, 0), 1, fill=False, color="0.6"))
        inks = (figures.RIGHT, "0.35", "0.35")
        drawing = [*zip(turn.tolist(), "o**", inks, names, strict=True)]
        drawing += [(180 - float(turn[0]), "^", figures.WRONG, "$z$")]
        drawing += [(90.0, "*", "black", r"$\hat p$")]
        for degrees, marker, ink, name in drawing:
            a, b = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
            axes.plot(a, b, marker, color=ink, ms=14 if marker == "*" else 9, mec="white")
            axes.text(1.2 * a, 1.2 * b, name, ha="center", va="center", fontsize=11)
        sources = ((0.9, by_sample, figures.RIGHT), (0.78, by_point, figures.WRONG))
        for (r, part, ink), k in product(sources, range(3)):
            if abs(float(part[k])) > 0.3:
                way = 2.8 * float(part[k])  # degrees: no arrow passes a proxy
                start, end = (
                    (r * math.cos(math.radians(at)), r * math.sin(math.radians(at)))
                    for at in (float(turn[k]), float(turn[k]) + way)
                )
                head = {
                    "arrowstyle": "-|>,head_length=0.5,head_width=0.28",
                    "color": ink,
                    "lw": 2.4,
                }
                head |= {"connectionstyle": f"arc3,rad={math.tan(math.radians(way / 4))}"}
                arrow = head | {"mutation_scale": 7, "shrinkA": 0, "shrinkB": 0}
                axes.annotate("", end, start, arrowprops=arrow)
        axes.set(xlim=(-1.3, 1.3), ylim=(0, 1.32), aspect="equal")
        axes.set_axis_off()
        axes.set_title(title, fontweight="bold")
    who = (("by the sample", figures.RIGHT), ("by its point", figures.WRONG))
    keys = [Line2D([], [], color=ink, lw=3, label=f"force {name}") for name, ink in who]
    fig.legend(handles=keys, loc="outside lower center", ncols=2, frameon=False)
    return fig, drawn


def crowded(crowd: Callable[[int, int], Array]) -> tuple[Figure, dict[str, Any]]:
    """How many of 499 random proxies in 8 dimensions are nearer than 30° and than 60°."""
    fig, panels = plt.subplots(1, 2, figsize=(6.5, 2.6), sharey=True)
    bars = crowd(8, 500)
    fine = np.interp([30, 60], 5 * np.arange(37), np.concatenate([[0], np.cumsum(bars)]))
    at = 5 * np.arange(36) + 2.5
    for axes, theta, count in zip(panels, (30, 60), fine, strict=True):
        axes.bar(at, bars, 4.4, color=[figures.WRONG if a < theta else "0.75" for a in at])
        axes.axvline(theta, color="black", lw=2)
        axes.text(theta - 4, 0.97 * bars.max(), "own\nproxy", ha="right", va="top", fontsize=9)
        said = f"own proxy at {theta}°:\n{count:.{0 if count > 1 else 1}f} of 499 are nearer"
        axes.set_title(said, fontweight="bold", loc="left", fontsize=10)
        axes.set(xlabel="angle to the place (°)", xticks=range(0, 181, 30))
    panels[0].set_ylabel("other proxies")
    return fig, {"nearer, 500 in 8": {"30°": float(fine[0]), "60°": float(fine[1])}}


def same_as_dmlkit(on_points: Callable[..., Tensor], alpha: float, lam: float) -> None:
    """Assert that value and gradients are those of dmlkit's SphericalExpansion, detached."""
    generator = torch.Generator().manual_seed(0)
    f = torch.randn(64, 16, generator=generator).requires_grad_()
    y = torch.arange(64) % 10
    theirs = losses.NormalizedSoftmaxLoss(10, 16, temperature=1 / alpha)
    see = spherical.SphericalExpansion(theirs, 8, lam, True, directions="rotated", steps=0)
    found = []
    for way in ("ours", "theirs"):
        torch.manual_seed(1)  # both turn the points alike
        x, q = F.normalize(f), F.normalize(theirs.proxies)
        real = F.cross_entropy(alpha * x @ q.T, y)
        value = real + lam * on_points(x, y, q, 26, alpha) if way == "ours" else see(f, y)
        found.append((value, *torch.autograd.grad(value, (f, theirs.proxies))))
    torch.testing.assert_close(*found, atol=1e-5, rtol=1e-4)


@torch.no_grad()
def crowding(x: Tensor, proxies: Tensor) -> tuple[float, float, float]:
    """Of the 40 % nearest samples (C, m, d): angle, that of points, nearer proxies to these."""
    C, m, d = x.shape
    x, q = F.normalize(x.flatten(0, 1)), F.normalize(proxies)
    y = torch.arange(C, device=x.device).repeat_interleave(m)
    own = (x * q[y]).sum(dim=1)
    E = own.topk(round(0.4 * len(x))).indices
    z = spherical.expand(x[E], q[y[E]], min(8, d - 1), directions="rotated")
    at = (z * q[y[E]][:, None]).sum(dim=2)
    by_point = (z @ q.T > own[E, None, None] + 1e-5).sum(dim=2).float().mean()
    degrees, of_points = (a.clamp(-1, 1).acos().rad2deg().mean().item() for a in (own[E], at))
    return degrees, of_points, by_point.item()


def setting(
    searched: Mapping[str, Any], d: int, form: str, scale: float | None = None
) -> tuple[float, float]:
    """Scale and rate of a form that are best on validation characters; at one scale, the rate."""
    means = {
        (float(alpha), float(rate)): float(np.mean(values))
        for alpha, rates in searched[f"d = {d}"][form].items()
        for rate, values in rates.items()
        if scale is None or float(alpha) == scale
    }
    return max(means, key=lambda cell: means[cell])


def search(
    train: Callable[..., float],
    groups: Mapping[int, Bed],
    dims: Sequence[int],
    forms: Sequence[str],
    scales: Sequence[float],
    rates: Sequence[float],
) -> dict[str, Any]:
    """Recall@1 on validation characters by dimensions, form, scale and rate; takes minutes."""
    found: dict[str, Any] = {}
    for d, name, alpha, rate in product(dims, forms, scales, rates):
        each = [train(k, bed, d, alpha, rate, name) for k, bed in groups.items()]
        by_scale = found.setdefault(f"d = {d}", {}).setdefault(name, {})
        by_scale.setdefault(f"{alpha:g}", {})[f"{rate:g}"] = np.array(each)
    return found


def searching(searched: Mapping[str, Any], d: int) -> tuple[Figure, dict[str, Any]]:
    """Heat maps of Recall@1 by scale and rate, without points and with them; with all cells."""
    fig, panels = plt.subplots(1, 2, figsize=(6.5, 3.0), sharey=True)
    names = {"none": "no points", "points": "points"}
    tables = {}
    for name in names:
        scales = searched[f"d = {d}"][name]
        tables[name] = np.array([[np.mean(v) for v in rates.values()] for rates in scales.values()])
    low, high = (end(t for each in tables.values() for t in each.flat) for end in (min, max))
    for axes, (name, title) in zip(panels, names.items(), strict=True):
        best = setting(searched, d, name)
        scales = searched[f"d = {d}"][name]
        rates = [*next(iter(scales.values()))]
        axes.imshow(tables[name], cmap="viridis", vmin=low, vmax=high, aspect="auto")
        for (row, column), value in np.ndenumerate(tables[name]):
            chosen = best == (float([*scales][row]), float(rates[column]))
            ink = "white" if value < (low + high) / 2 else "black"
            look: dict[str, Any] = {"weight": "bold", "size": 11} if chosen else {"size": 9}
            axes.text(column, row, f"{value:.0f}", ha="center", va="center", color=ink, **look)
            if chosen:
                box = (column - 0.48, row - 0.48), 0.96, 0.96
                axes.add_patch(Rectangle(*box, fill=False, ec=figures.WRONG, lw=2.5))
        axes.set_xticks(range(len(rates)), rates)
        axes.set_yticks(range(len(scales)), [*scales])
        axes.set_xlabel("learning rate")
        axes.grid(False)
        axes.set_title(title, weight="bold", loc="left")
    panels[0].set_ylabel("scale α")
    drawn = {
        dims: {
            form: {alpha: {rate: figures.sample(v) for rate, v in rates.items()}
                   for alpha, rates in scales.items()}
            for form, scales in each.items()
        }
        for dims, each in searched.items()
    }  # fmt: skip
    return fig, drawn


def _interval(values: Array) -> dict[str, Any]:
    """A sample with its mean and 95 % interval."""
    mean, low, high, _ = (float(v) for v in statistics.interval(values))
    return figures.sample(values, mean=mean, low=low, high=high)


def answer(
    gains: Mapping[str, Array],
    further: Mapping[str, Array],
    none: Array,
    floors: Mapping[str, float],
) -> tuple[Figure, dict[str, Any]]:
    """Differences of Recall@1, the first of them the rule's, the last two at a scale of their own.

    ``further`` differences are kept, not drawn, as is Recall@1 without points and training.
    """
    fig, panels = plt.subplots(2, 1, figsize=(6.5, 4.4), height_ratios=(4.3, 2.1))
    drawn = {name: _interval(each) for name, each in gains.items()}
    for axes, names in zip(panels, ([*drawn][:-2], [*drawn][-2:]), strict=True):
        ends = [(drawn[name]["low"], drawn[name]["high"]) for name in names]
        low, high = min(0, np.min(ends)), max(1, np.max(ends))
        for row, name in enumerate(names):
            mean, first = drawn[name]["mean"], axes is panels[0] and row == 0
            ink = figures.RIGHT if first else "0.45"
            axes.plot(ends[row], [row] * 2, color=ink, lw=8 if first else 3, solid_capstyle="butt")
            axes.plot(mean, row, "o", color=ink, ms=13 if first else 8, mec="white", mew=1.5)
            said = f"{round(mean, 1) + 0.0:+.1f}".replace("-", "−").replace("+0.0", "0.0")
            look: dict[str, Any] = {"size": 14, "weight": "bold"} if first else {"size": 10}
            axes.text(1.02, row, said, transform=axes.get_yaxis_transform(), va="center",
                      color=ink, **look)  # fmt: skip
        axes.axvline(0, color="black", lw=1)
        axes.set_yticks(range(len(names)), names)
        if axes is panels[0]:
            axes.get_yticklabels()[0].set_fontweight("bold")
        axes.set(ylim=(len(names) - 0.5, -0.6))
        axes.set_xlim(low - 0.08 * (high - low), high + 0.08 * (high - low))
        axes.grid(False, axis="y")
    panels[0].axvline(1, color="0.4", lw=1.2, ls=":")
    panels[0].set_title("points − none; dotted: the rule's one point", loc="left", size=10)
    panels[1].set_xlabel("difference of Recall@1 (points)")
    drawn |= {name: _interval(each) for name, each in further.items()}
    return fig, {
        "gain": drawn,
        "8 dimensions, none": figures.sample(none),
        "floor": figures.example(dict(floors)),
    }


def standing(
    stands: Mapping[tuple[int, int, float, str], tuple[float, float, float]],
    searched: Mapping[str, Any],
) -> dict[str, Any]:
    """Where samples of heads without points stand, in 8 dimensions at the best scale and at 32."""
    best, _ = setting(searched, 8, "none")
    found = {}
    for name, scale in (("best scale", best), ("scale 32", 32.0)):
        each = [v for (_, *key), v in stands.items() if key == [8, scale, "none"]]
        names = "degrees", "degrees of points", "nearer to a point"
        found[name] = dict(zip(names, np.mean(each, axis=0).tolist(), strict=True))
    return {"stands": found}


def elsewhere() -> dict[str, Any]:
    """SEE minus none with 1,000 classes in 8 dimensions, in a recorded study of ours; in points."""
    kept = pd.read_csv(dmlkit.ROOT / "data" / "evidence" / "see_classes.csv")
    kept = kept[kept["repetition"] >= 0]
    kept = kept.pivot_table("recall_at_1", "repetition", ["variant", "classes", "dim"])
    each = 100 * (kept["SEE", 1000, 8] - kept["plain", 1000, 8])
    return {"study: SEE − none, 1,000 in 8": _interval(each.to_numpy())}
