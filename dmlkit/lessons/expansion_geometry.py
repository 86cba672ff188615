"""What lesson 16 draws."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor, nn

from dmlkit import data, figures, models, retrieval
from dmlkit.figures import globes
from dmlkit.figures.looks import GREEN

Array = NDArray[np.float64]
#: n points of samples (B, d) and their proxies in one of the ways: -> (B, n, d).
Placing = Callable[[Tensor, Tensor, int, str], Tensor]
#: The share of training characters that two repetitions have in common.
OVERLAP = 1 / 4
#: A sample's angle to its proxy in the pictures, and their places on the sphere.
THETA = 40.0
PROXY = globes.place(0, 0)
OTHERS = np.stack([globes.place(65, 200), globes.place(70, 345), globes.place(85, 60)])
SAMPLE = globes.place(THETA, 90)
POINT = globes.place(THETA, 345)  # nearer to the second of the others than to the own proxy
CIRCLE = globes.place(THETA, np.linspace(0, 360, 200))
#: Color, marker and name of a way.
LOOKS = {
    "corners": (figures.RIGHT, "o", "SEE's corners"),
    "random": ("0.4", "s", "random places"),
    "spread": (GREEN, "D", "spread evenly"),
}
#: Characters of a test, of all tests, and of all tests and validation.
BLOCK, TESTED, ALL = 76, 532, 760


def features() -> Tensor:
    """What a small frozen network makes of 1,218 characters, those of tests first: (C, 20, 384).

    The network learned 300 of the last 450, which are in no test.
    """
    part: dict[str, Any] = {"part": "evaluate", "val_classes": 0, "train_classes": 450}
    part |= {"test_classes": 768, "per_class": 20}
    shown = [
        torch.as_tensor(data.load("glyphs", each, **part).images[:]) for each in ("test", "train")
    ]
    network = models.ConvNet(64, pretrained=True)
    rest = nn.Sequential(*list(network)[:-1], nn.Flatten()).eval()
    with torch.no_grad():
        made = [rest(some.float() / 255) for some in torch.cat(shown).split(1000)]
    return torch.cat(made).unflatten(0, (-1, 20))


def characters(every: Tensor, k: int, classes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Features that repetition k learns (C, m, f), those that it searches (N, f), their labels.

    Repetitions 0 to 6 are tests, 7 to 9 chose the settings; no two search the same characters.
    """
    order = np.random.default_rng(160).permutation(TESTED)
    test = np.concatenate([order, np.arange(TESTED, ALL)])[BLOCK * k : BLOCK * (k + 1)]
    others = np.random.default_rng(1600 + k).permutation(np.setdiff1d(np.arange(len(every)), test))
    X, Z = every[others[:classes]], every[test].flatten(0, 1)
    mean, scale = X.flatten(0, 1).mean(dim=0), X.std()
    return (X - mean) / scale, (Z - mean) / scale, torch.arange(BLOCK).repeat_interleave(20)


def begin(
    seed: int, X: Tensor, rate: float, optimizer: str, steps: int
) -> tuple[nn.Module, nn.Parameter, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    """A head to 8 dimensions, a proxy for each class of X (C, m, f), Adam or SGD, a falling rate.

    Proxies learn at ten times the rate of the head, with SGD at a hundred times.
    """
    torch.manual_seed(seed)
    head, proxies = nn.Linear(X.shape[2], 8), nn.Parameter(torch.randn(len(X), 8))
    groups: list[dict[str, Any]] = [{"params": head.parameters()}]
    groups += [{"params": [proxies], "lr": rate * {"adam": 10, "sgd": 100}[optimizer]}]
    step: torch.optim.Optimizer = torch.optim.Adam(groups, lr=rate)
    if optimizer == "sgd":
        step = torch.optim.SGD(groups, lr=rate, momentum=0.9)
    decay = torch.optim.lr_scheduler.LambdaLR(step, lambda s: min(1, (1 - s / steps) / 0.3))
    return head, proxies, step, decay


def recall(x: Tensor, labels: Tensor) -> float:
    """Recall@1 in percent: (N, d), (N,)."""
    found = retrieval.recall_at_k(x.detach(), labels.numpy(), ks=(1,), metric="cosine")
    return 100 * float(found[1])


def best(tried: Iterable[list[Any]]) -> dict[tuple[str, str, float], float]:
    """The rate of each optimizer, way and weight that finds most on validation characters."""
    scores: dict[tuple[str, str, float], dict[float, list[float]]] = {}
    for optimizer, way, lam, rate, _, found in tried:
        scores.setdefault((optimizer, way, float(lam)), {}).setdefault(rate, []).append(found)
    return {
        of: max(each, key=lambda rate: float(np.mean(each[rate]))) for of, each in scores.items()
    }


def _globe(axes: Axes, view: Array, title: str, up: float = 0.16) -> None:
    """The sphere with its proxies, the sample and the circle of places as near as it."""
    globes.globe(axes, view, np.stack([PROXY, *OTHERS]), title)
    globes.line(axes, view, CIRCLE, color="0.25", lw=1.3)
    globes.mark(axes, view, PROXY, r"$\hat p$", up, **globes.PROXY)
    for k, q in enumerate(OTHERS):
        globes.mark(axes, view, q, rf"$\hat q_{k + 1}$", -up if k == 2 else up, **globes.OTHER)
    globes.mark(axes, view, SAMPLE, "$x$", -up, **globes.SAMPLE)


def sphere() -> Figure:
    """The plane of a proxy and a sample, and the circle of places as near as the sample."""
    fig, (flat, ball) = plt.subplots(1, 2, figsize=(6.5, 3.3))
    view = globes.camera(globes.place(42, 75), PROXY)
    _globe(ball, view, "all places as near as the sample")
    center = np.cos(np.radians(THETA)) * PROXY  # of the circle
    globes.line(ball, view, np.stack([center, SAMPLE]), color=figures.RIGHT, lw=1.8)
    globes.mark(ball, view, (center + SAMPLE) / 2, "    $r$", 0.03, ms=0)
    globes.mark(ball, view, center, ms=5, color=figures.RIGHT)
    globes.mark(ball, view, POINT, "$z$", -0.17, **globes.POINT)
    t = np.radians(np.linspace(-25, 115, 200))
    flat.plot(np.sin(t), np.cos(t), color="0.6", lw=1.2)
    a, b = np.sin(np.radians(THETA)), np.cos(np.radians(THETA))
    for start, end, ink in (
        ((0, 0), (0, 1), "0.6"),
        ((0, 0), (0, b), "black"),
        ((0, 0), (a, b), figures.RIGHT),
        ((0, b), (a, b), figures.RIGHT),
    ):
        style = {"arrowstyle": "-|>", "color": ink, "lw": 1.8, "shrinkA": 0, "shrinkB": 0}
        flat.annotate("", end, start, arrowprops=style | {"mutation_scale": 13})
    arc = np.radians(np.linspace(0, THETA, 40))
    flat.plot(0.3 * np.sin(arc), 0.3 * np.cos(arc), color="0.3", lw=1.2)
    for at, text in {
        (0.14, 0.38): r"$\theta$",
        (-0.2, 0.45): r"$\cos\theta\,\hat p$",
        (0.3, 0.83): "$r$",
        (0.75, 0.8): "$x$",
        (0, 1.1): r"$\hat p$",
        (0.44, 0.38): "1",
        (-0.06, -0.06): "0",
    }.items():
        flat.text(*at, text, ha="center", va="center", fontsize=12)
    flat.plot(0, 1, "*", color="black", ms=12)
    flat.plot(a, b, "o", color=figures.RIGHT, ms=9)
    flat.set(xlim=(-0.5, 1.05), ylim=(-0.15, 1.2), aspect="equal")
    flat.set_axis_off()
    flat.set_title(r"$x = \cos\theta\,\hat p + r$", fontweight="bold")
    return fig


def pulls(placed: Placing, draws: int) -> tuple[Figure, dict[str, Any]]:
    """Two points of a sample, as their proxy sees them, and the mean pulls of many draws."""
    fig, panels = plt.subplots(1, 3, figsize=(6.5, 2.75))
    x, p = (torch.as_tensor(each)[None] for each in (SAMPLE, PROXY))
    radius, turn = float(np.sin(np.radians(THETA))), np.linspace(0, 2 * np.pi, 200)
    found: dict[str, Any] = {}
    sides = {"random": ", to any side", "corners": ", away from $x$", "spread": ""}
    torch.manual_seed(11)
    for axes, way in zip(panels, ("random", "corners", "spread"), strict=True):
        # Samples of a batch share the turn of a simplex, so each is a batch of its own.
        z = torch.cat([placed(x, p, 2, way) for _ in range(draws)])[..., :2] / radius
        pull = z.mean(dim=1)  # (draws, 2)
        length = pull.square().sum(dim=1).mean().sqrt().item()
        found[way] = {"length": 100 * length, "mean": 100 * pull.mean(dim=0).norm().item()}
        axes.plot(np.cos(turn), np.sin(turn), color="0.6", lw=1)
        axes.plot(*pull[:400].T, ".", color="0.35", ms=5.5, alpha=0.45, mew=0)
        for place in z[0]:
            style = {"arrowstyle": "-|>", "color": figures.WRONG, "lw": 1.8, "shrinkA": 0}
            axes.annotate("", place.tolist(), (0, 0), arrowprops=style | {"shrinkB": 3})
            axes.plot(*place, **globes.POINT)
        axes.plot(0, 1, "o", **globes.SAMPLE)
        axes.text(0.15, 1.07, "$x$", fontsize=12)
        axes.plot(0, 0, "*", color="black", ms=13, mec="white", zorder=3)
        axes.plot(*pull[0], "o", color="white", ms=8, mec="black", mew=2, zorder=5)
        axes.set(xlim=(-1.3, 1.3), ylim=(-1.2, 1.35), aspect="equal")
        axes.set_axis_off()
        axes.set_title(f"{LOOKS[way][2]}:\n{length:.2f}{sides[way]}", fontweight="bold")
    return fig, found


def answer(
    kept: Mapping[str, Any], live: Mapping[str, Any], points: int
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 by weight, with the pull towards the sample that is left; the rule's differences.

    Both have "recall" and "left", {optimizer way λ: (repetitions,)}; ``live`` means are crosses.
    """
    fig, axes = plt.subplot_mosaic(
        [["recall", "gain"], ["left", "gain"]], figsize=(6.5, 5.2),
        width_ratios=(1.35, 1), height_ratios=(1.5, 1),
    )  # fmt: skip
    recall, none = kept["recall"], kept["recall"]["adam none 0"]
    lams = sorted({float(name.split()[2]) for name in recall if "adam corners" in name})
    drawn: dict[str, Any] = {"minus none": {}, "left": {}}
    for way, (ink, marker, said) in LOOKS.items():
        names = [f"adam {way} {lam:g}" for lam in lams]
        rows = [figures.summary(recall[name] - none, OVERLAP) for name in names]
        drawn["minus none"] |= dict(zip(names, rows, strict=True))
        mean = np.array([row["mean"] for row in rows])
        style: dict[str, Any] = {"color": ink, "marker": marker, "lw": 2, "ms": 6, "mec": "white"}
        high = np.array([row["high"] for row in rows]) - mean
        axes["recall"].errorbar(lams, mean, yerr=high, elinewidth=3, ecolor=(ink, 0.35), **style)
        mine = {
            lam: live["recall"][name].mean() - live["recall"]["adam none 0"].mean()
            for lam, name in zip(lams, names, strict=True)
            if name in live["recall"]
        }
        axes["recall"].plot([*mine], [*mine.values()], "x", color=ink, ms=5)
        left = [figures.summary(kept["left"][name], OVERLAP) for name in names]
        drawn["left"] |= dict(zip(names, left, strict=True))
        axes["left"].plot(lams, [row["mean"] for row in left], **style | {"ls": ""}, label=said)
    _law(axes["left"], points, lams)
    _label(axes["recall"], none.mean(), lams, points)
    asked = {
        f"{name},\nλ = {lam:g}": recall[f"{optimizer} corners {lam:g}"]
        - recall[f"{optimizer} random {lam:g}"]
        for name, optimizer, lam in (
            ("Adam", "adam", lams[0]), ("Adam", "adam", lams[-1]), ("SGD", "sgd", lams[-1]),
        )
    }  # fmt: skip
    drawn["gain"] = figures.gains(axes["gain"], asked, "points of Recall@1", OVERLAP)
    axes["gain"].axvspan(-1, 1, color="0.9", zorder=0)
    axes["gain"].set_title("SEE's corners − random", fontweight="bold", loc="left")
    for a, b in (("corners", "random"), ("corners", "spread"), ("random", "spread")):
        drawn[f"{a} − {b}"] = {
            f"{lam:g}": figures.summary(recall[f"adam {a} {lam:g}"] - recall[f"adam {b} {lam:g}"],
                                        OVERLAP) for lam in lams
        }  # fmt: skip
    level = {name: figures.summary(each, OVERLAP) for name, each in recall.items()}
    return fig, drawn | {"level": level}


def _weights(axes: Axes, lams: list[float], points: int) -> None:
    """The axis of weights, with the weight at which the corners cancel their sample's pull."""
    axes.set(xscale="log", xlim=(0.85 * lams[0], 1.25 * lams[-1]))
    axes.set_xticks(lams, [f"{lam:g}" for lam in lams])
    axes.minorticks_off()
    axes.axvline(points, color="0.4", lw=1, ls=":", zorder=0)
    axes.axhline(0, color="0.3", lw=1.2, zorder=1)


def _law(axes: Axes, points: int, lams: list[float]) -> None:
    """What the formulas say of the pull towards the sample."""
    fine, ink = np.geomspace(lams[0], lams[-1], 200), LOOKS["corners"][0]
    axes.plot(fine, 1 - fine / points, "--", color=ink, lw=1.5, zorder=0)
    axes.plot(fine, 0 * fine + 1, "--", color="0.4", lw=1.5, zorder=0)
    axes.text(lams[0], -0.75, f"dashed: the formula,\n1 − λ/{points}", fontsize=9,
              color=ink, va="center")  # fmt: skip
    axes.text(0.94 * points, -1.7, f"λ = {points}", fontsize=9, color="0.3", ha="right")
    axes.set(xlabel="weight λ of the points", ylabel="samples' pull left")
    axes.set_title("the corners undo the samples' pull", fontweight="bold", loc="left")
    _weights(axes, lams, points)


def _label(axes: Axes, none: float, lams: list[float], points: int) -> None:
    """Names of the curves of Recall@1."""
    axes.text(0.3, 0.6, f"no points: {none:.0f} %", fontsize=9, color="0.3")
    for way, x, y in (("corners", 6.5, -17), ("random", 4.5, -10), ("spread", 23, -2.1)):
        ink, _, said = LOOKS[way]
        axes.text(x, y, said, color=ink, fontsize=10, fontweight="bold", ha="right")
    axes.set(ylabel="Recall@1 minus no points", ylim=(None, 2.6))
    axes.set_title("does not matter at 0.2, matters at 20", fontweight="bold", loc="left")
    _weights(axes, lams, points)


def elsewhere() -> str:
    """What a study of whole networks found, in words."""
    fig, drawn, *_ = figures.verdict("16_expansion_geometry")
    plt.close(fig)
    ((each,),) = (found.values() for found in drawn.values())
    effect, low, high = (f"{each[end]:.1f}".replace("-", "−") for end in ("effect", "low", "high"))
    return f"Corners minus random places: {effect} [{low}, {high}] points. Word: {each['word']}."
