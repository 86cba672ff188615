"""What lesson 17 prepares, checks and draws; its features are lesson 16's, too."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle
from numpy.typing import NDArray
from torch import Tensor, nn

from dmlkit import data, figures, losses, models, retrieval
from dmlkit.losses import spherical

Array = NDArray[np.float64]
#: Images that no earlier form of this lesson saw; of the repetitions, other groups, too.
IMAGES = {"seed": 1}
GROUPS = IMAGES | {"test_classes": 66}
#: A repetition tests 66 characters, and shares some of the 500 that it learns with the others.
OVERLAP = 66 / 566
LOOKS: dict[str, tuple[str, dict[str, Any]]] = {
    "none": ("no points", {"color": "black", "marker": "o"}),
    "detached": ("detached", {"color": figures.RIGHT, "marker": "s"}),
    "printed": ("as printed", {"color": figures.WRONG, "marker": "^"}),
    "tuned": ("attached, tuned", {"color": "#660077", "marker": "D"}),
    "duplicates": ("duplicates", {"color": "0.5", "marker": "v", "ls": "--"}),
}
#: Features of characters to train on, of others, labels of these, Recall@1 of what is untrained.
Bed = tuple[Tensor, Tensor, NDArray[np.int64], dict[str, float]]


def recall(x: Tensor, labels: NDArray[np.int64]) -> float:
    """Recall@1 in percent: (N, d), (N,)."""
    found = retrieval.recall_at_k(x.detach().cpu(), labels, ks=(1,), metric="cosine")
    return 100 * float(found[1])


def characters(k: int, classes: int, shown: int = 20, **recipe: Any) -> Bed:
    """Features of what repetition k learns (C, m, 384) and searches (N, 384), labels, and floors.

    The features are of a network that learned 300 other characters; ten blocks of 76 characters
    share none. The floors are Recall@1 of raw pixels and of the features' 8 principal components.
    What else is in the ``recipe`` of glyphs: other blocks or images.
    """
    part: dict[str, Any] = {"part": "evaluate", "val_classes": 0, "class_split": k}
    part |= {"train_classes": classes, "per_class": shown, "test_classes": 76} | recipe
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
def standing(x: Tensor, proxies: Tensor, alpha: float) -> dict[str, float]:
    """Of the 40 % of samples (C, m, d) that are nearest to their proxies: their angle to these, and
    what is left of the softmax's pull on them, 1 - p in percent."""
    y = torch.arange(len(x)).repeat_interleave(x.shape[1])
    cosines = F.normalize(x.flatten(0, 1)) @ F.normalize(proxies).T
    own, E = cosines.gather(1, y[:, None])[:, 0].topk(round(0.4 * len(y)))
    chance = (alpha * cosines[E]).softmax(dim=1).gather(1, y[E, None])
    angle = own.clamp(-1, 1).acos().rad2deg().mean().item()
    return {"angle": angle, "left": 100 * (1 - chance.mean().item())}


def setting(
    searched: Mapping[str, Any], form: str, scale: float | None = None
) -> tuple[float, float]:
    """Scale and rate of a form that are best on validation characters; at one scale, the rate."""
    means = {
        (float(alpha), float(rate)): float(np.mean(values))
        for alpha, rates in searched[form].items()
        for rate, values in rates.items()
        if scale is None or float(alpha) == scale
    }
    return max(means, key=lambda each: means[each])


def best_weight(searched: Mapping[str, Any]) -> str:
    """The form of attached points, by weight, that is best on validation characters."""

    def found(form: str) -> float:
        alpha, rate = setting(searched, form)
        return float(np.mean(searched[form][f"{alpha:g}"][f"{rate:g}"]))

    return max(("printed", *(f for f in searched if f.startswith("attached"))), key=found)


def search(
    train: Callable[..., tuple[nn.Module, Tensor]],
    forms: Iterable[str],
    scales: Sequence[float],
    rates: Sequence[float],
    classes: int,
) -> dict[str, Any]:
    """Recall@1 on three groups of validation characters by form, scale and rate: five minutes."""
    beds = {k: characters(k, classes, **IMAGES) for k in (7, 8, 9)}

    def recalls(alpha: float, rate: float, form: str) -> list[float]:
        heads = {k: train(k, bed[0], alpha, rate, form)[0] for k, bed in beds.items()}
        return [recall(heads[k](Z), labels) for k, (_, Z, labels, _) in beds.items()]

    return {
        form: {
            f"{alpha:g}": {f"{rate:g}": recalls(alpha, rate, form) for rate in rates}
            for alpha in scales
        }
        for form in forms
    }


def _lines(
    axes: Axes, found: Mapping[str, Mapping[str, Mapping[str, Any]]], gap: float, band: bool
) -> None:
    """Means by scale, {form: {scale: summary}}, their intervals as bands, names at the last scale.

    Names that would meet stand a ``gap`` apart.
    """
    for over, (form, by_scale) in enumerate(found.items()):
        (name, look), at = LOOKS[form], [float(alpha) for alpha in by_scale]
        each = {end: [s[end] for s in by_scale.values()] for end in ("mean", "low", "high")}
        axes.plot(at, each["mean"], lw=2, ms=7, mec="white", label=name, zorder=9 - over, **look)
        if band and len(at) > 1:
            axes.fill_between(at, each["low"], each["high"], color=look["color"], alpha=0.18, lw=0)
        elif band:
            axes.vlines(at, each["low"], each["high"], color=look["color"], alpha=0.4, lw=6)
    ends = {form: [*by_scale.values()][-1]["mean"] for form, by_scale in found.items()}
    ticks, place = [float(alpha) for alpha in next(iter(found.values()))], -np.inf
    for form in sorted(found, key=lambda form: ends[form]):
        (name, look), place = LOOKS[form], max(ends[form], place + gap)
        axes.text(1.25 * ticks[-1], place, name, color=look["color"], va="center", fontsize=9)
    axes.set(xscale="log", xlim=(0.8 * ticks[0], 1.15 * ticks[-1]), xlabel="scale α")
    axes.set_xticks(ticks, [f"{a:g}" for a in ticks])
    axes.minorticks_off()
    axes.grid(False, axis="x")


def answer(
    scores: Mapping[str, Mapping[float, Sequence[float]]],
    floors: Mapping[str, float],
    gains: Mapping[str, Array],
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 by scale of each form; what each adds to no points; the differences of the rule."""
    level, added = (
        {
            form: {f"{a:g}": figures.summary(np.subtract(v, lose and scores["none"][a]), OVERLAP)
                   for a, v in by_scale.items()}
            for form, by_scale in scores.items()
        }
        for lose in (0, 1)
    )  # fmt: skip
    fig, (left, right) = plt.subplots(1, 2, figsize=(6.5, 3.7))
    curves = {form: added[form] for form in ("detached", "printed", "duplicates")}
    _lines(left, {"none": level["none"]} | {form: level[form] for form in curves}, 1.5, band=False)
    for name, value in [*floors.items()][1:]:  # raw pixels are far below
        left.axhline(value, color="0.5", lw=1.2, ls=":", zorder=0)
        left.text(0.43, value + 0.3, f"{name}: {value:.0f}", color="0.4", fontsize=8.5)
    left.set(ylim=(57, 90), ylabel="Recall@1 (%)")
    left.set_title("highest at scale 2", fontweight="bold", loc="left")
    right.axhline(0, color="black", lw=2)
    _lines(right, curves, 0.9, band=True)
    (alpha, tuned), (name, look) = *added["tuned"].items(), LOOKS["tuned"]
    right.vlines(1.2 * float(alpha), tuned["low"], tuned["high"], color=look["color"], lw=2.5)
    right.plot(1.2 * float(alpha), tuned["mean"], ms=7, mec="white", zorder=10, **look)
    for form, one, at, place in (
        ("tuned", tuned, 1.2 * float(alpha), (1.9, 7.2)),
        ("printed", added["printed"]["2"], 2.0, (2.6, -7.2)),
        ("printed", added["printed"]["32"], 32.0, (6.5, 9.4)),
    ):
        said = f"{one['mean']:+.1f} [{one['low']:.1f}, {one['high']:.1f}]".replace("-", "−")
        said, ink = f"{name}:\n{said}" if form == "tuned" else said, LOOKS[form][1]["color"]
        line = {"arrowstyle": "-", "color": ink, "lw": 1, "shrinkB": 5}
        style: dict[str, Any] = {"color": ink, "fontsize": 9, "ha": "center", "va": "center"}
        right.annotate(said, (at, one["mean"]), place, arrowprops=line, **style)
    right.set(ylim=(-8.5, 12), yticks=(-5, 0, 5, 10), ylabel="minus no points")
    right.set_title("as printed: a gain at 32", fontweight="bold", loc="left")
    kept = {name: figures.summary(each, OVERLAP) for name, each in gains.items()}
    return fig, {"level": level, "added": added, "gain": kept, "floor": dict(floors)}


def why(
    stands: Mapping[str, Mapping[float, Sequence[Mapping[str, float]]]],
) -> tuple[Figure, dict[str, Any]]:
    """Angles of samples to their proxies, and what is left of the pull on them, by scale."""
    found = {
        form: {
            f"{a:g}": {key: figures.summary([one[key] for one in each], OVERLAP) for key in each[0]}
            for a, each in by_scale.items()
        }
        for form, by_scale in stands.items()
    }
    fig, panels = plt.subplots(1, 2, figsize=(6.5, 3.2))
    titles = {"angle": "angle to the own proxy (°)", "left": "pull that is left, 1 − p (%)"}
    for axes, (key, title), gap in zip(panels, titles.items(), (2.6, 7), strict=True):
        each = {form: {a: one[key] for a, one in by.items()} for form, by in found.items()}
        _lines(axes, each, gap, band=True)
        axes.set_ylim(0, None)
        axes.set_title(title, fontweight="bold", loc="left")
    return fig, {"stands": found}


def searching(searched: Mapping[str, Any]) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 on validation characters by rate, for each scale a panel."""
    scales = [*searched["none"]]
    fig, panels = plt.subplots(1, len(scales), figsize=(6.5, 2.5), sharey=True)
    for axes, alpha in zip(panels, scales, strict=True):
        for form, (name, look) in LOOKS.items():
            at = [float(rate) for rate in searched[form][alpha]]
            means = [np.mean(values) for values in searched[form][alpha].values()]
            axes.plot(at, means, lw=1.6, ms=5, mec="white", label=name, **look)
        axes.set(xscale="log", xlabel="learning rate")
        axes.set_xticks((0.01, 0.05, 0.2), ("0.01", "0.05", "0.2"))
        axes.minorticks_off()
        axes.set_title(f"α = {alpha}", fontweight="bold", loc="left")
    panels[0].set_ylabel("Recall@1 (%)")
    fig.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    best = {form: float(np.mean(searched[form][f"{a:g}"][f"{r:g}"]))
            for form in searched for a, r in [setting(searched, form)]}  # fmt: skip
    kept = {
        form: {
            alpha: {rate: figures.sample(v) for rate, v in rates.items()}
            for alpha, rates in scales.items()
        }
        for form, scales in searched.items()
        if form != "tuned"  # one of the others
    }
    return fig, {"searched": kept, "best": best}
