"""What lesson 16 draws."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor, nn

from dmlkit import figures
from dmlkit.figures import globes
from dmlkit.losses import spherical

Array = NDArray[np.float64]
#: n points of samples (B, d) and their proxies in one of the ways: -> (B, n, d).
Placing = Callable[[Tensor, Tensor, int, str], Tensor]
#: How points are placed, and how many of them a sample has.
Way = tuple[str, int]
#: The share of training characters that two repetitions have in common.
OVERLAP = 1 / 4
#: A sample's angle to its proxy in the pictures, and their places on the sphere.
THETA = 40.0
PROXY = globes.place(0, 0)
OTHERS = np.stack([globes.place(65, 200), globes.place(70, 345), globes.place(85, 60)])
SAMPLE = globes.place(THETA, 90)
POINT = globes.place(THETA, 345)  # nearer to the second of the others than to the own proxy
CIRCLE = globes.place(THETA, np.linspace(0, 360, 200))
#: The color of a way.
INKS = {"random": "0.45", "far": figures.RIGHT}
_NUMBERS = {2: "two", 3: "three", 7: "seven"}


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


def _seen_from_proxy(n_aug: int) -> Array:
    """Sample and points as the proxy sees them, at radius 1: -> (n_aug + 1, 3)."""
    d = max(n_aug, 2) + 1
    pole, ahead = torch.eye(d, dtype=torch.float64)[[-1, 0]]
    x = 0.5 * pole + math.sin(math.pi / 3) * ahead  # 60 degrees away
    both = torch.cat([x[None], spherical.expand(x[None], pole[None], n_aug)[0]])[:, :-1]
    up, right, near = F.pad(both, (0, 4 - d)).numpy().T / math.sin(math.pi / 3)
    return np.stack([right, up, near], axis=1)


def corners() -> tuple[Figure, dict[str, Any]]:
    """Sample and one, two or three points, as their proxy sees them."""
    fig, panels = plt.subplots(1, 3, figsize=(6.5, 2.75))
    titles = {1: "one: a line\n(needs d ≥ 2)", 2: "two: a triangle\n(needs d ≥ 3)"}
    titles |= {3: "three: a tetrahedron\n(needs d ≥ 4)"}
    sides: dict[str, Any] = {}
    turn = np.linspace(0, 2 * np.pi, 200)
    for axes, (n, title) in zip(panels, titles.items(), strict=True):
        seen, view = _seen_from_proxy(n), np.eye(3)
        if n == 3:
            view = globes.camera(np.array([0.4, 0.25, 0.9]), view[1])
            globes.globe(axes, view, np.eye(3)[:1])
        axes.plot(np.cos(turn), np.sin(turn), color="0.4", lw=1.2)
        for i, j in zip(*np.triu_indices(n + 1, 1), strict=True):
            globes.line(axes, view, seen[[i, j]], color=figures.WRONG, lw=1.5)
        globes.mark(axes, view, 0 * PROXY, r"       $\hat p$", 0.16, **globes.PROXY)
        for k, point in enumerate(seen):
            x, y, _ = view @ point
            away = 0.24 / max(np.hypot(x, y), 0.3)
            style: dict[str, Any] = dict(globes.POINT if k else globes.SAMPLE)
            globes.mark(axes, view, point, **style)
            name = f"$z_{k}$" if k else "$x$"
            axes.text(x + away * x, y + away * y, name, ha="center", va="center", fontsize=11)
        axes.set(xlim=(-1.4, 1.4), ylim=(-1.4, 1.4), aspect="equal")
        axes.set_title(title, fontweight="bold")
        axes.set_axis_off()
        sides[f"{n} points"] = np.linalg.norm(seen[:, None] - seen, axis=2)[0, 1:]
    return fig, sides


def pulls(placed: Placing, alpha: float, draws: int) -> tuple[Figure, dict[str, Any]]:
    """Where points pull their own proxy, as it sees them: of one point, two random, two far apart.

    On the first picture's sphere, with 299 other proxies in random directions.
    """
    fig, panels = plt.subplots(1, 3, figsize=(6.5, 2.6))
    x, p = (torch.as_tensor(each)[None] for each in (SAMPLE, PROXY))
    others = torch.randn(299, 3, generator=torch.Generator().manual_seed(3)).double()
    q = torch.cat([p, F.normalize(others)])
    turn, unit = np.linspace(0, 2 * np.pi, 200), math.sin(math.radians(THETA))
    rows = {"one point": ("random", 1), "two, random": ("random", 2), "two, far apart": ("far", 2)}
    found: dict[str, Any] = {}
    torch.manual_seed(5)
    for axes, (name, (way, n)) in zip(panels, rows.items(), strict=True):
        # Samples of a batch share the turn of a simplex, so each is a batch of its own.
        z = torch.cat([placed(x, p, n, way) for _ in range(draws)])  # (draws, n, 3)
        own = torch.softmax(alpha * z @ q.T, dim=2)[..., :1]
        pull = ((1 - own) * z).mean(dim=1)[:, :2] / (unit * float((1 - own).mean()))
        found[name] = {"noise": 100 * pull.square().sum(dim=1).mean().sqrt().item()}
        found[name] |= {"mean": 100 * pull.mean(dim=0).norm().item()}
        axes.plot(np.cos(turn), np.sin(turn), color="0.6", lw=1)
        for place in z[0, :, :2] / unit:
            style = {"arrowstyle": "-|>", "color": figures.WRONG, "lw": 1.8, "shrinkA": 0}
            axes.annotate("", place.tolist(), (0, 0), arrowprops=style | {"shrinkB": 3})
            axes.plot(*place, **globes.POINT)
        axes.plot(*pull.T, ".", color="0.35", ms=5.5, alpha=0.45, mew=0)
        axes.plot(0, 0, "*", color="black", ms=13, mec="white", zorder=3)
        axes.plot(*pull[0], "o", color=figures.RIGHT, ms=8, mec="white", zorder=5)
        axes.set(xlim=(-1.25, 1.25), ylim=(-1.25, 1.25), aspect="equal")
        axes.set_axis_off()
        axes.set_title(f"{name}:\nnoise {found[name]['noise']:.0f}", fontweight="bold")
    return fig, found


def noise(
    term: Callable[[Tensor, Tensor, Tensor], Tensor],
    head: nn.Module,
    proxies: Tensor,
    X: Tensor,
    alpha: float,
    batch: int,
    turns: int,
) -> tuple[float, float]:
    """Noise of the points' gradient at unit proxies by drawing their places anew, in percent.

    It is over the noise by drawing batches of X (C, m, f); then how much of its variance is at the
    proxies of the batch's own classes.
    """
    q = F.normalize(proxies).detach().requires_grad_()
    own: list[Tensor] = []
    pushes: list[Tensor] = []
    for _ in range(12):
        y, i = torch.randint(len(X), (batch,)), torch.randint(X.shape[1], (batch,))
        x, unit = F.normalize(head(X[y, i])).detach(), F.normalize(q)
        real = F.cross_entropy(alpha * x @ unit.T, y)
        own += torch.autograd.grad(real, q, retain_graph=True)
        terms = [term(x, y, unit) for _ in range(turns)]
        each = [torch.autograd.grad(value, q, retain_graph=True)[0] for value in terms]
        of = torch.stack(each).var(dim=0).sum(dim=1)  # (C,), of (turns, C, d)
        pushes.append(torch.stack([of.sum(), of[y.unique()].sum()]))
    whole = torch.stack(own).var(dim=0).sum().sqrt()
    total, theirs = torch.stack(pushes).mean(dim=0)
    return 100 * (total.sqrt() / whole).item(), 100 * (theirs / total).item()


def noises(found: Mapping[Way, Array]) -> tuple[Figure, dict[str, Any]]:
    """Noise of the points by their number, in percent of that of batches."""
    fig, axes = plt.subplots(figsize=(6.5, 2.7))
    drawn: dict[str, Any] = {}
    fine = np.linspace(1, 7, 100)
    start = float(np.mean(found["random", 1]))
    axes.plot(fine, start / np.sqrt(fine), color="0.6", lw=1.2, ls=":")
    axes.text(5.6, start / np.sqrt(5.6) + 7, r"$\propto 1/\sqrt{n}$", color="0.45", fontsize=10)
    for way in ("random", "far"):
        at, each = _curve(found, way)
        means = each.mean(axis=1)
        axes.plot(at, means, "o-", color=INKS[way], lw=2.2, ms=7, mec="white", zorder=3)
        for n, values, mean in zip(at, each, means, strict=True):
            drawn[f"{way} {n}"] = figures.summary(values, OVERLAP)
            if n > 1:
                said = f"{mean:.0f}" if mean > 9.5 else f"{mean:.1f}"
                axes.text(n + 0.08, mean + 8, said, color=INKS[way], fontsize=10)
    axes.text(1.12, start, f"one point: {start:.0f}", va="center", fontsize=10)
    axes.text(4.9, drawn["random 7"]["mean"] - 4, "random places", color=INKS["random"])
    axes.text(4.9, 6, "far apart", color=INKS["far"])
    axes.set(
        xlabel="points a sample", xticks=(1, 2, 3, 7), xlim=(0.8, 7.6), ylim=(-6, 1.12 * start)
    )
    axes.set_ylabel("noise (of batches: 100)")
    axes.set_title("two far apart have hardly any noise", fontweight="bold", loc="left")
    return fig, {"noise": drawn}


def _against_noise(
    noise: Mapping[Way, Array], values: Mapping[str, Array], weight: float
) -> dict[str, dict[str, Any]]:
    """Of each way, the noise that it removes, and its gain; ``noise`` is that at ``weight``.

    Ways far apart and corners are compared with as many random places, random places with one.
    """
    drawn: dict[str, dict[str, Any]] = {}
    for name, found in values.items():
        *other, way, n = name.split()
        base = 1 if way == "random" else int(n)
        minus = " ".join([*other, "random", str(base)])
        if way == "none" or minus not in values or minus == name:
            continue
        less = float(np.mean(noise["random", base]) - np.mean(noise[way, int(n)]))
        lam = float(other[0]) if other else weight  # noise is in proportion to it
        kept: dict[str, Any] = {"removed": less * lam / weight, "said": _NUMBERS[int(n)]}
        if other:
            kept["said"] += f", λ = {lam:g}"
        drawn[name] = figures.summary(found - values[minus], OVERLAP) | kept
    return drawn


def explained(
    noise: Mapping[Way, Array], values: Mapping[str, Array], weight: float
) -> tuple[Figure, dict[str, Any]]:
    """Gains in Recall@1 against the noise removed, for all weights and numbers of points."""
    fig, axes = plt.subplots(figsize=(6.5, 3.9))
    drawn = _against_noise(noise, values, weight)
    at = {name: (each["removed"], each["mean"]) for name, each in drawn.items()}
    x, y = np.array([dot for name, dot in at.items() if "far" in name]).T
    slope, end = float(x @ y / (x @ x)), 1.3 * float(x.max())
    axes.plot([0, end], [0, slope * end], color=INKS["far"], lw=1.3, ls=":", zorder=1)
    axes.axhline(0, color="0.3", lw=1, zorder=1)
    looks: dict[str, dict[str, Any]] = {
        "far": {"marker": "o", "color": INKS["far"], "ms": 8, "mec": "white"},
        "random": {"marker": "o", "color": INKS["random"], "ms": 7, "mfc": "white"},
        "corners": {"marker": "^", "color": figures.WRONG, "ms": 8, "mec": "white"},
    }
    for name, each in drawn.items():
        way = name.split()[-2]
        axes.plot(*at[name], **looks[way], zorder=4)
        if way == "far":
            axes.plot([at[name][0]] * 2, [each["low"], each["high"]], color=INKS["far"], lw=3.5,
                      alpha=0.35)  # fmt: skip
            left = each["said"] == "seven"  # beside the bar of three
            axes.annotate(each["said"], at[name], (-9, 8) if left else (9, -11), color=INKS["far"],
                          textcoords="offset points", va="center", fontsize=10,
                          ha="right" if left else "left")  # fmt: skip
    for name, said, dx, dy, ha in (
        ("random 7", "random places:\n2, 3, 7 − one", -28, 0.2, "center"),
        ("4 corners 7", "SEE's seven corners, λ = 4", 7, 0.1, "left"),
    ):
        ink = looks[name.split()[-2]]["color"]
        where = at[name][0] + dx, at[name][1] + dy
        axes.text(*where, said, ha=ha, fontsize=10, color=ink)
    axes.set(xlim=(0, end), ylim=(-0.5, 4.4), xlabel="noise removed (noise of batches: 100)")
    axes.set_ylabel("gain, points of Recall@1")
    r = float(np.corrcoef(x, y)[0, 1])
    axes.set_title(
        "where more noise goes, more is gained (drawn afterwards)", fontweight="bold", loc="left"
    )
    rest = float(np.corrcoef(np.delete([x, y], x.argmax(), axis=1))[0, 1])
    found = {"r": r, "points per 100": 100 * slope, "r without the farthest": rest}
    for each in drawn.values():
        each["removed"] = figures.example(each["removed"])
        del each["said"]
    return fig, {"gain": drawn} | {name: figures.example(each) for name, each in found.items()}


def _curve(found: Mapping[Way, Array], way: str) -> tuple[list[int], Array]:
    """Numbers of points, and what a way found with each; one point is random: (P,), (P, R)."""
    at = [1, *sorted(n for of, n in found if of == way and n > 1)]
    return at, np.stack([found[way if n > 1 else "random", n] for n in at])


def answer(
    score: Mapping[Way, Array], live: Mapping[Way, Array], gains: Mapping[str, Array]
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 minus that without points, by their number; differences, the rule's first.

    The reader's ``live`` means are small crosses.
    """
    fig, (left, right) = plt.subplots(1, 2, figsize=(6.5, 3.7), width_ratios=(1.25, 1))
    drawn: dict[str, Any] = {}
    none = score["none", 0]
    left.axhline(0, color="0.3", lw=1.5)
    left.text(7.4, 0.05, f"no points: {none.mean():.1f} %", ha="right", color="0.3", fontsize=10)
    for way in ("random", "far"):
        at, each = _curve(score, way)
        kept = [figures.summary(values - none, OVERLAP) for values in each]
        drawn |= {f"{way} {n}": one for n, one in zip(at, kept, strict=True)}
        left.plot(at, [one["mean"] for one in kept], "o-", color=INKS[way], lw=2.2, ms=7,
                  mec="white", zorder=3)  # fmt: skip
        ends = ([one[end] for one in kept] for end in ("low", "high"))
        left.fill_between(at, *ends, color=INKS[way], alpha=0.18, lw=0)
        theirs = _curve(live, way)[1].mean(axis=1) - live["none", 0].mean()
        left.plot(at, theirs, "x", color=INKS[way], ms=5, zorder=4)
    own = figures.summary(score["corners", 7] - none, OVERLAP)
    left.plot(7.25, own["mean"], "^", color=figures.WRONG, ms=8, mec="white", zorder=4)
    near = {
        "far": (4.1, drawn["far 3"]["mean"] + 0.1, "far apart", "left", "bottom"),
        "random": (3.5, drawn["random 3"]["mean"] - 0.12, "random places", "left", "top"),
    }
    for way, (x, y, name, ha, va) in near.items():  # fmt: skip
        left.text(x, y, name, color=INKS[way], fontsize=10, fontweight="bold", ha=ha, va=va)
    left.text(1.15, drawn["random 1"]["mean"], "one point", va="top", fontsize=9)
    left.set(xlabel="points a sample", xticks=(1, 2, 3, 7), xlim=(0.7, 7.6))
    left.set_ylabel("Recall@1 minus no points")
    left.set_title("far apart gains, below no points", fontweight="bold", loc="left")
    kept_gains = figures.gains(right, gains, "points of Recall@1", OVERLAP)
    right.axvline(1, color="0.4", lw=1.2, ls=":", zorder=0)
    right.tick_params(axis="y", length=0, labelsize=9)
    right.set_title("distance gains, points cost", fontweight="bold", loc="left")
    level = {f"{way} {n}": figures.summary(each, OVERLAP) for (way, n), each in score.items()}
    return fig, {"minus none": drawn | {"corners 7": own}, "gain": kept_gains, "level": level}


def chosen(searched: Mapping[str, Any]) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 on validation characters by weight, each at its best rate, at three scales."""
    fig, panels = plt.subplots(1, 3, figsize=(6.5, 2.7), sharey=True)
    looks = {
        "random 1": ("0.75", "o"), "random 2": (INKS["random"], "o"), "far 2": (INKS["far"], "o"),
        "random 7": (INKS["random"], "s"), "far 7": (INKS["far"], "s"),
    }  # fmt: skip
    for axes, (scale, weights) in zip(panels, searched.items(), strict=True):
        best = {
            weight: {
                name: max(float(np.mean(v)) for v in rates.values()) for name, rates in each.items()
            }
            for weight, each in weights.items()
        }
        axes.axhline(best["0"]["none 0"], color="0.3", lw=1.2, ls=":", label="no points")
        at = [weight for weight in best if weight != "0"]
        for name, (ink, marker) in looks.items():
            axes.plot(range(len(at)), [best[weight][name] for weight in at], marker=marker,
                      color=ink, lw=1.6, ms=5, label=name)  # fmt: skip
        axes.set(xticks=range(len(at)), xticklabels=at, xlabel="weight λ")
        axes.set_title(f"scale {scale}", fontweight="bold", loc="left")
    panels[0].set_ylabel("Recall@1 (%)")
    fig.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    kept = {
        scale: {weight: {name: {rate: figures.sample(v) for rate, v in rates.items()}
                         for name, rates in each.items()} for weight, each in weights.items()}
        for scale, weights in searched.items()
    }  # fmt: skip
    return fig, kept


def elsewhere() -> str:
    """What a study of whole networks found, in words."""
    fig, drawn, *_ = figures.verdict("16_expansion_geometry")
    plt.close(fig)
    ((each,),) = (found.values() for found in drawn.values())
    effect, low, high = (f"{each[end]:.1f}".replace("-", "−") for end in ("effect", "low", "high"))
    return f"Corners minus random places: {effect} [{low}, {high}] points. Word: {each['word']}."
