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
from matplotlib.patches import Circle
from numpy.typing import NDArray
from torch import Tensor, nn

import dmlkit
from dmlkit import data, figures, losses, models, retrieval
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


def begin(
    k: int, X: Tensor, d: int, rate: float, steps: int
) -> tuple[nn.Module, nn.Parameter, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    """A head (384 -> d), a proxy for each class of X (C, m, 384), Adam, and a rate that falls.

    Proxies learn at ten times the rate of the head; both fall to 0 in the last 30 % of the steps.
    """
    torch.manual_seed(k)
    head, proxies = nn.Linear(X.shape[2], d), nn.Parameter(torch.randn(len(X), d))
    groups: list[dict[str, Any]] = [
        {"params": head.parameters()},
        {"params": [proxies], "lr": 10 * rate},
    ]
    optimizer = torch.optim.Adam(groups, lr=rate)
    decay = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1, (1 - s / steps) / 0.3))
    return head, proxies, optimizer, decay


def felt(
    turn: Tensor, forces: Callable[[Tensor, str], tuple[Tensor, Tensor]]
) -> tuple[Figure, dict[str, Any]]:
    """Who feels a point, detached and attached, on a circle; with the forces.

    The last of the forces is that on the own proxy, on top.
    """
    fig, panels = plt.subplots(1, 2, figsize=(6.5, 2.5))
    names, drawn = ("$x$", r"$\hat q_1$", r"$\hat q_2$"), {}
    titles = "detached: it moves proxies", "attached: and pulls its sample"
    at = [*turn.tolist(), 90.0]
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
        for (r, part, ink), k in product(sources, range(4)):
            if abs(float(part[k])) > 0.3:
                way = 2.8 * float(part[k])  # degrees: no arrow passes a proxy
                near = r - 0.16 * (k == 3)  # no arrow lies on another
                start, end = (
                    (near * math.cos(math.radians(to)), near * math.sin(math.radians(to)))
                    for to in (at[k], at[k] + way)
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


def pulling() -> tuple[Figure, dict[str, Any]]:
    """How strongly a softmax pulls a place along the sphere to its own proxy, by angle and scale.

    (1 − p) sin θ, the force over α, with p the probability of its own class among 500 in 8
    dimensions; the mean of 300 places, for each of which the other proxies stand in random
    directions, so that their forces along the sphere have the mean 0.
    """
    generator = torch.Generator().manual_seed(0)
    others = F.normalize(torch.randn(300, 499, 8, generator=generator).double(), dim=2)[..., 0]
    degrees = torch.arange(0, 91, dtype=torch.float64)
    fig, axes = plt.subplots(figsize=(6.5, 2.2))
    drawn: dict[str, Any] = {}
    for alpha, ink in ((2, "black"), (8, "0.6"), (32, figures.WRONG)):
        rest = torch.logsumexp(alpha * others, dim=1)  # (300,)
        left = torch.sigmoid(rest[:, None] - alpha * degrees.deg2rad().cos()).mean(dim=0)  # 1 − p
        pull = left * degrees.deg2rad().sin()
        axes.plot(degrees, pull, color=ink, lw=2.2, label=f"α = {alpha}")
        drawn[f"{alpha}"] = {f"{d}°": float(pull[d]) for d in (10, 17, 20, 30, 34, 40)}
        if at := {2: 17, 32: 34}.get(alpha):  # where samples of trained heads stand (More)
            high = float(pull[at])
            axes.plot([at, at], [0, high], color=ink, lw=1.4, ls=":")
            axes.plot(at, high, "o", color=ink, ms=9, mec="white", zorder=4)
            said = f"scale {alpha}:\n{at}°, {high:.2f}"
            axes.text(at + 1.5 if alpha == 32 else at - 1.5, 0.2 if alpha == 32 else 0.5, said,
                      color=ink, ha="left" if alpha == 32 else "right", va="center",
                      fontsize=9)  # fmt: skip
    axes.set(
        xlabel="angle θ of the sample to its own proxy (°)", ylabel="(1 − p) sin θ", ylim=(0, 1.05)
    )
    axes.set(xlim=(0, 90), xticks=range(0, 91, 15))
    axes.legend(loc="lower right")
    return fig, {"pull": drawn}


def same_as_dmlkit(on_points: Callable[..., Tensor], alpha: float, lam: float) -> None:
    """Assert that value and gradients are those of dmlkit's SphericalExpansion."""
    generator = torch.Generator().manual_seed(0)
    f = torch.randn(64, 16, generator=generator).requires_grad_()
    y = torch.arange(64) % 10
    theirs = losses.NormalizedSoftmaxLoss(10, 16, temperature=1 / alpha)
    for places, attached in (("rotated", False), ("rotated", True), ("none", True)):
        see = spherical.SphericalExpansion(theirs, 8, lam, not attached, directions=places, steps=0)
        found = []
        for way in ("ours", "theirs"):
            torch.manual_seed(1)  # both turn the points alike
            x, q = F.normalize(f), F.normalize(theirs.proxies)
            real = F.cross_entropy(alpha * x @ q.T, y)
            added = on_points(x, y, q, 26, alpha, places, attached) if way == "ours" else None
            value = see(f, y) if added is None else real + lam * added
            found.append((value, *torch.autograd.grad(value, (f, theirs.proxies))))
        torch.testing.assert_close(*found, atol=1e-5, rtol=1e-4)


@torch.no_grad()
def crowding(x: Tensor, proxies: Tensor) -> tuple[float, float]:
    """Of the 40 % nearest samples (C, m, d): angle to the proxy, nearer proxies to their points."""
    C, m, d = x.shape
    x, q = F.normalize(x.flatten(0, 1)), F.normalize(proxies)
    y = torch.arange(C, device=x.device).repeat_interleave(m)
    own = (x * q[y]).sum(dim=1)
    E = own.topk(round(0.4 * len(x))).indices
    z = spherical.expand(x[E], q[y[E]], min(8, d - 1), directions="rotated")
    nearer = (z @ q.T > own[E, None, None] + 1e-5).sum(dim=2).float().mean()
    return own[E].clamp(-1, 1).acos().rad2deg().mean().item(), nearer.item()


def setting(
    searched: Mapping[str, Any], cell: str, form: str, scale: float | None = None
) -> tuple[float, float]:
    """Scale and rate of a form that are best on validation characters; at one scale, the rate."""
    means = {
        (float(alpha), float(rate)): float(np.mean(values))
        for alpha, rates in searched[cell][form].items()
        for rate, values in rates.items()
        if scale is None or float(alpha) == scale
    }
    return max(means, key=lambda each: means[each])


def search(
    train: Callable[..., tuple[float, float]],
    groups: Mapping[int, Bed],
    cells: Mapping[str, tuple[int, int]],
    forms: Sequence[str],
    scales: Sequence[float],
    rates: Mapping[str, Sequence[float]],
) -> dict[str, Any]:
    """Recall@1 on validation characters by cell, form, scale and rate; takes ten minutes.

    Of the first cell all forms, and the angles of samples to their proxies; of the others two.
    """
    found: dict[str, Any] = {}
    for row, (cell, (classes, d)) in enumerate(cells.items()):
        for name, alpha, rate in product(forms if row == 0 else forms[:2], scales, rates[cell]):
            each = [
                train(k, (bed[0][:classes], *bed[1:]), d, alpha, rate, name)
                for k, bed in groups.items()
            ]
            for kind, values in zip((cell, "angles"), np.transpose(each), strict=True):
                if kind == cell or row == 0:
                    by_scale = found.setdefault(kind, {}).setdefault(name, {})
                    by_scale.setdefault(f"{alpha:g}", {})[f"{rate:g}"] = values
    return found


def searching(searched: Mapping[str, Any], cell: str) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 of four forms by scale, each at its best rate, and by angle; with all cells."""
    fig, (left, right) = plt.subplots(1, 2, figsize=(6.5, 3.3), sharey=True)
    looks: dict[str, tuple[str, dict[str, Any]]] = {
        "none": ("no points", {"color": "black", "marker": "o"}),
        "points": ("points, detached", {"color": figures.RIGHT, "marker": "^", "ls": "--"}),
        "printed": ("points, as printed", {"color": figures.WRONG, "marker": "^"}),
        "duplicates": ("duplicates", {"color": "0.55", "marker": "s"}),
    }
    for place, (name, (label, look)) in enumerate(looks.items()):
        scales = [*searched[cell][name]]
        best = [setting(searched, cell, name, float(alpha)) for alpha in scales]
        each = np.array([searched[cell][name][f"{a:g}"][f"{r:g}"] for a, r in best])
        at = np.array([a for a, _ in best]) * 1.09 ** (place - 1.5)
        left.vlines(at, each.min(axis=1), each.max(axis=1), color=look["color"], lw=2, alpha=0.6)
        bare = {key: value for key, value in look.items() if key != "ls"}
        left.plot(at, each.mean(axis=1), label=label, ms=5, ls="", mec="white", mew=0.6, **bare)
        top = int(each.mean(axis=1).argmax())
        left.plot(at[top], each.mean(axis=1)[top], "o", ms=13, mfc="none", mec=look["color"],
                  mew=1.2)  # fmt: skip
        dots = [
            (np.mean(angles), np.mean(searched[cell][name][alpha][rate]))
            for alpha, rates in searched["angles"][name].items()
            for rate, angles in rates.items()
        ]
        right.plot(*np.transpose(dots), look["marker"], color=look["color"], ms=5, alpha=0.75)
    left.set(xscale="log", xlabel="scale α, each at its best rate")
    left.set_xticks([float(a) for a in searched[cell]["none"]], [*searched[cell]["none"]])
    left.minorticks_off()
    left.set_title("Recall@1 (%) by scale", weight="bold", loc="left")
    left.grid(False, axis="x")
    right.set(xlabel="angle of samples to their own proxy (°)", xlim=(10, None))
    right.set_title("by angle, all settings", weight="bold", loc="left")
    fig.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    drawn = {
        kind: {
            form: {alpha: {rate: figures.sample(v) for rate, v in rates.items()}
                   for alpha, rates in scales.items()}
            for form, scales in each.items()
        }
        for kind, each in searched.items()
    }  # fmt: skip
    return fig, drawn


def answer(
    levels: Mapping[str, tuple[Array, Array]],
    floors: Mapping[str, float],
    gains: Mapping[str, Array],
    further: Mapping[str, Array],
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 of each form at scale 32 and at its best scale; differences, the rule's first.

    ``further`` differences are kept, not drawn.
    """
    fig, (left, right) = plt.subplots(1, 2, figsize=(6.5, 3.9), width_ratios=(1.15, 1))
    found: dict[str, Any] = {}
    for (name, both), ink, shift in zip(
        levels.items(), ("black", figures.RIGHT, figures.WRONG), (0.0, 0.05, -0.05), strict=True
    ):
        means = [float(np.mean(each)) for each in both]
        at = np.arange(2) + shift
        left.plot(at, means, color=ink, lw=2.2, zorder=2)
        for place, each, mean in zip(at, both, means, strict=True):
            left.plot([place] * len(each), each, ".", color=ink, ms=4, alpha=0.5)
            left.plot(place, mean, "o", color=ink, ms=8, mec="white", zorder=3)
        side = {"no points": -0.6, "detached": -2.6, "as printed": 0.0}[name]
        left.text(-0.13, means[0] + side, f"{name} {means[0]:.0f}", color=ink, ha="right",
                  va="center", fontsize=9)  # fmt: skip
        found |= {f"{name}, {where}": figures.sample(each)
                  for where, each in zip(("32", "best"), both, strict=True)}  # fmt: skip
    left.text(1.13, means[1] + 0.6, f"all {means[1]:.0f}", va="center", fontsize=9)
    for name, value in floors.items():
        left.axhline(value, color="0.5", lw=1, ls=":", zorder=0)
        said = f"{name.partition(' (')[0]} {value:.0f}"
        left.text(1.42, value - 0.5, said, color="0.4", fontsize=8, ha="right", va="top")
    left.set(xlim=(-1.15, 1.45), ylim=(35, 90), xticks=(0, 1))
    left.set_xticklabels(["scale 32", "best scale"])
    left.grid(False)
    left.set_title("Recall@1 (%)", fontweight="bold", loc="left")
    kept = figures.gains(right, gains, "points of Recall@1")
    kept |= {name: figures.summary(each) for name, each in further.items()}
    right.axvline(1, color="0.4", lw=1.2, ls=":", zorder=0)
    right.set_title("minus no points", fontweight="bold", loc="left")
    right.tick_params(axis="y", length=0, labelsize=9)
    right.get_yticklabels()[0].set_fontweight("bold")
    return fig, {"gain": kept, "level": found, "floor": dict(floors)}


def standing(
    stands: Mapping[tuple[int, int, float, str], tuple[float, float]],
    crowd: Callable[[int, int], Array],
    searched: Mapping[str, Any],
) -> dict[str, Any]:
    """Angles of samples to their proxies, and nearer proxies to points, of trained heads."""
    best, _ = setting(searched, "500 in 8", "none")
    keys = {"best scale": (best, "none")}
    keys |= {f"scale 32, {form}": (32.0, form) for form in ("none", "duplicates", "printed")}
    found = {}
    ends, inside = 5 * np.arange(37), np.concatenate([[0], np.cumsum(crowd(8, 500))])
    for name, key in keys.items():
        each = [v for (_, d, *rest), v in stands.items() if (d, *rest) == (8, *key)]
        degrees, nearer = np.mean(each, axis=0).tolist()
        random = float(np.interp(degrees, ends, inside))
        found[name] = {"degrees": degrees, "nearer": nearer, "nearer, random": random}
    return {"stands": found}


def cells(gain: Array, others: Mapping[str, Array]) -> tuple[Figure, dict[str, Any]]:
    """What points add by classes and dimensions, and how much more in the first of these cells.

    ``others`` that are no such cell are kept, not drawn.
    """
    few = {name: others[name][: len(gain)] for name in ("50 in 8", "500 in 64")}
    rows = {"500 in 8": gain, **few, "first − mean": gain - np.mean([*few.values()], axis=0)}
    names = ["500 classes in 8 dimensions", "50 in 8", "500 in 64", "first − mean of both"]
    fig, axes = plt.subplots(figsize=(6.5, 2.1))
    drawn = figures.gains(axes, rows, "points − none, Recall@1 (points)")
    axes.set_yticks(range(len(rows)), names)
    axes.axvline(1, color="0.4", lw=1.2, ls=":", zorder=0)
    return fig, {"gain": {name: figures.summary(each) for name, each in others.items()} | drawn}


def elsewhere() -> dict[str, Any]:
    """SEE minus none with 1,000 classes in 8 dimensions, in a recorded study of ours; in points."""
    kept = pd.read_csv(dmlkit.ROOT / "data" / "evidence" / "see_classes.csv")
    kept = kept[kept["repetition"] >= 0]
    kept = kept.pivot_table("recall_at_1", "repetition", ["variant", "classes", "dim"])
    each = 100 * (kept["SEE", 1000, 8] - kept["plain", 1000, 8])
    return {"study: SEE − none, 1,000 in 8": figures.summary(each.to_numpy())}
