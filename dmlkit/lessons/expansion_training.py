"""What lesson 17 prepares, checks and draws; its features are lesson 16's, too."""

import json
import math
from collections.abc import Callable, Mapping
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
from dmlkit import data, figures, losses, models, retrieval, statistics
from dmlkit.losses import spherical

Array = NDArray[np.float64]
#: Features of 200 characters to train on, of 100 others, labels of these, Recall@1 of their pixels.
Bed = tuple[Tensor, Tensor, NDArray[np.int64], float]
#: Scale, form ("none", "push", "pull" or "both"), and weight of the points.
Kind = tuple[float, str, float]
#: The color of a form.
INKS = {"push": figures.WRONG, "pull": figures.RIGHT, "both": "0.35"}


def recall(x: Tensor, labels: NDArray[np.int64]) -> float:
    """Recall@1 in percent: (N, d), (N,)."""
    found = retrieval.recall_at_k(x.detach().cpu(), labels, ks=(1,), metric="cosine")
    return 100 * float(found[1])


def _resting(images: Tensor, labels: Tensor, k: int, steps: int) -> nn.Module:
    """A network that learned the first 100 characters, without its last layer."""
    torch.manual_seed(k)
    where = images.device
    network = models.ConvNet(64, widths=(8, 16, 32)).to(where)
    network = network.to(memory_format=torch.channels_last)
    q = nn.Parameter(torch.randn(100, 64).to(where))
    optimizer = torch.optim.Adam([*network.parameters()], lr=0.01)
    optimizer.add_param_group({"params": [q], "lr": 0.1})
    first = torch.where(labels < 100)[0]
    for _ in range(steps):
        i = first[torch.randint(len(first), (128,)).to(where)]
        optimizer.zero_grad()
        logits = 16 * F.normalize(network(images[i])) @ F.normalize(q).T
        F.cross_entropy(logits, labels[i]).backward()
        optimizer.step()
    return nn.Sequential(*list(network)[:-1], nn.Flatten()).eval()


def bed(k: int, steps: int, where: str = "cpu") -> Bed:
    """What repetition k trains its heads on and is tested by: features of its own network."""
    part: dict[str, Any] = {"part": "evaluate", "val_classes": 0, "class_split": k}
    train, test = (data.load("glyphs", which, **part) for which in ("train", "test"))
    images, unseen = (
        torch.as_tensor(each.images[:]).to(where).float() / 255 for each in (train, test)
    )
    labels = torch.from_numpy(train.labels).to(where)
    rest = _resting(images, labels, k, steps)
    with torch.no_grad():
        X, Z = (torch.cat([rest(some) for some in each.split(1000)]) for each in (images, unseen))
        X, Z = (X - X.mean(dim=0)) / X.std(), (Z - X.mean(dim=0)) / X.std()
    X = X[labels >= 100].view(-1, 40, 512)  # 200 characters, 40 images of each
    return X, Z, test.labels, recall(unseen.flatten(1), test.labels)


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
    """How many of 199 random proxies in 8 dimensions are nearer than 33° and than 60°."""
    fig, panels = plt.subplots(1, 2, figsize=(6.5, 2.6), sharey=True)
    bars = crowd(8, 200)
    fine = np.interp([33, 60], 5 * np.arange(37), np.concatenate([[0], np.cumsum(bars)]))
    at = 5 * np.arange(36) + 2.5
    for axes, theta, count in zip(panels, (33, 60), fine, strict=True):
        axes.bar(at, bars, 4.4, color=[figures.WRONG if a < theta else "0.75" for a in at])
        axes.axvline(theta, color="black", lw=2)
        axes.text(theta - 4, 0.97 * bars.max(), "own\nproxy", ha="right", va="top", fontsize=9)
        said = f"own proxy at {theta}°:\n{count:.{0 if count > 1 else 1}f} of 199 are nearer"
        axes.set_title(said, fontweight="bold", loc="left", fontsize=10)
        axes.set(xlabel="angle to the place (°)", xticks=range(0, 181, 30))
    panels[0].set_ylabel("other proxies")
    return fig, {"nearer, 200 in 8": {"33°": float(fine[0]), "60°": float(fine[1])}}


def same_as_dmlkit(on_points: Callable[..., Tensor], alpha: float, lam: float) -> None:
    """Assert that push and both are dmlkit's SphericalExpansion, and the pull a part of both."""
    generator = torch.Generator().manual_seed(0)
    f = torch.randn(64, 16, generator=generator).requires_grad_()
    y = torch.arange(64) % 10
    theirs = losses.NormalizedSoftmaxLoss(10, 16, temperature=1 / alpha)

    def own(form: str) -> tuple[Tensor, ...]:
        torch.manual_seed(1)  # all turn the points alike
        x, q = F.normalize(f), F.normalize(theirs.proxies)
        value = F.cross_entropy(alpha * x @ q.T, y) + lam * on_points(x, y, q, 26, alpha, form)
        return (value, *torch.autograd.grad(value, (f, theirs.proxies)))

    for form in ("push", "both"):
        detached = form == "push"
        see = spherical.SphericalExpansion(theirs, 8, lam, detached, directions="rotated", steps=0)
        torch.manual_seed(1)
        value = see(f, y)
        found = (value, *torch.autograd.grad(value, (f, theirs.proxies)))
        torch.testing.assert_close(own(form), found, atol=1e-5, rtol=1e-4)
    plain = F.cross_entropy(alpha * F.normalize(f) @ F.normalize(theirs.proxies).T, y)
    (rest,) = torch.autograd.grad(plain, theirs.proxies)
    pull, both = own("pull"), own("both")
    torch.testing.assert_close(pull[:2], both[:2], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(pull[2], rest, atol=1e-5, rtol=1e-4)  # no proxy feels the points


@torch.no_grad()
def crowding(x: Tensor, proxies: Tensor) -> tuple[float, float, float]:
    """Of the 40 % nearest samples (C, m, d): angle, nearer proxies to them, and to their points."""
    C, m, d = x.shape
    x, q = F.normalize(x.flatten(0, 1)), F.normalize(proxies)
    y = torch.arange(C, device=x.device).repeat_interleave(m)
    own = (x * q[y]).sum(dim=1)
    E = own.topk(round(0.4 * len(x))).indices
    z = spherical.expand(x[E], q[y[E]], min(8, d - 1), directions="rotated")
    by_sample = (x[E] @ q.T > own[E, None] + 1e-5).sum(dim=1).float().mean()
    by_point = (z @ q.T > own[E, None, None] + 1e-5).sum(dim=2).float().mean()
    return own[E].acos().rad2deg().mean().item(), by_sample.item(), by_point.item()


def _interval(values: Array) -> dict[str, Any]:
    """A sample with its mean and 99 % interval."""
    mean, low, high, _ = (float(v) for v in statistics.interval(values, level=0.99))
    return figures.sample(values, mean=mean, low=low, high=high)


def answer(
    found: Mapping[Kind, Array],
    angles: Mapping[tuple[int, *Kind], tuple[float, float, float]],
    best: Mapping[tuple[str, float], float],
    pixels: float,
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 of each form minus that without points by the scale and weight; with the numbers.

    ``best`` is the scale that validation chose for each form at each weight.
    """
    scales = sorted({alpha for alpha, *_ in found})
    weights = sorted({w for _, form, w in found if form != "none"}, reverse=True)
    fig, (base, *panels) = plt.subplots(1, 3, figsize=(6.5, 3.6), width_ratios=(0.75, 1.3, 1))
    panels[1].sharey(panels[0])
    panels[1].tick_params(labelleft=False)
    none = {alpha: found[alpha, "none", 0.0] for alpha in scales}
    at_best = none[best["none", 0.0]]
    drawn: dict[str, Any] = {
        "raw pixels": figures.example(pixels),
        "none": {f"{alpha:g}": _interval(each) for alpha, each in none.items()},
        "none: best − 16": _interval(at_best - none[scales[-1]]),
    }
    named = {f"{alpha:g}": each for alpha, each in none.items()}
    figures.sweep(base, named, {"raw pixels": pixels}, "0.35", unit="")
    for text in base.texts:
        text.set_visible(False)
    base.text(
        0.04, pixels - 0.6, "raw pixels", fontsize=9, va="top", transform=base.get_yaxis_transform()
    )
    base.set(ylim=(25, 46), yticks=range(25, 46, 5), xlabel="scale α", ylabel=figures.RECALL_AXIS)
    base.set_title("no points", weight="bold", loc="left")
    for axes, w in zip(panels, weights, strict=True):
        forms = [form for form in INKS if (form, w) in best]
        kept: dict[str, Any] = {}
        for number, form in enumerate(forms):
            each = {alpha: found[alpha, form, w] for alpha in scales}
            kept[form] = {f"{alpha:g}": figures.sample(v) for alpha, v in each.items()}
            gains = {alpha: _interval(v - none[alpha]) for alpha, v in each.items()}
            kept[f"{form} − none"] = {f"{alpha:g}": gain for alpha, gain in gains.items()}
            kept[f"best: {form} − none"] = _interval(each[best[form, w]] - at_best)
            if form != "push":
                kept[f"{form} − push"] = {
                    f"{alpha:g}": _interval(v - found[alpha, "push", w])
                    for alpha, v in each.items()
                }
            at = np.arange(len(scales)) + 0.17 * (number - (len(forms) - 1) / 2)
            means, lows, highs = (
                np.array([gain[end] for gain in gains.values()]) for end in ("mean", "low", "high")
            )
            axes.errorbar(
                at, means, [means - lows, highs - means],
                fmt="o", color=INKS[form], ms=6, lw=2, mec="white",
            )  # fmt: skip
            chosen = scales.index(best[form, w])
            axes.plot(at[chosen], means[chosen], "o", ms=13, mfc="none", mec=INKS[form], mew=1.6)
        axes.axhline(0, color="black", lw=1.2)
        axes.set_xticks(range(len(scales)), [f"{alpha:g}" for alpha in scales])
        axes.set(xlim=(-0.5, len(scales) - 0.5), xlabel="scale α")
        axes.grid(False, axis="x")
        whose = "code" if w < 1 else "paper"
        axes.set_title(f"{whose}: λ = {w:.1f}", weight="bold", loc="left")
        drawn[f"λ = {w:g}"] = kept
    crowds: dict[Kind, list[tuple[float, float, float]]] = {}
    for (_, alpha, form, w), crowd in angles.items():
        crowds.setdefault((alpha, form, w), []).append(crowd)
    for (alpha, form, w), those in crowds.items():
        degrees, by_sample, by_point = np.array(those).mean(axis=0)
        drawn.setdefault("crowd", {})[f"{alpha:g}, {form}, {w:g}"] = {
            "degrees": float(degrees), "nearer to a sample": float(by_sample),
            "nearer to a point": float(by_point),
        }  # fmt: skip
    panels[0].set_ylabel("Recall@1 minus no points")
    look: dict[str, Any] = {"ls": "", "marker": "o"}
    keys = [Line2D([], [], color=ink, ms=7, label=form, **look) for form, ink in INKS.items()]
    ring = Line2D([], [], ms=11, mfc="none", mec="0.3", label="validation's choice", **look)
    fig.legend(handles=[*keys, ring], loc="outside lower center", ncols=4, frameon=False)
    return fig, drawn


def printed() -> dict[str, Any]:
    """Gains that the paper prints in few dimensions; of a study; and of a record of networks."""
    table = pd.read_csv(dmlkit.ROOT / "data" / "reported" / "see_table1.csv")
    low = table[(table["metric"] == "R@1") & table["dim"].isin([128, 384])]
    low = low[low["backbone"].isin(["DeiT-S", "DINO", "ViT-S"])]
    low = low.pivot(index=["backbone", "dim", "dataset"], columns="method", values="value")
    lead = (low["SEE (ours)"] - low.drop(columns="SEE (ours)").max(axis=1)).unstack("dataset")
    kept = pd.read_csv(dmlkit.ROOT / "data" / "evidence" / "see_classes.csv")
    kept = kept[kept["repetition"] >= 0]
    kept = kept.pivot_table("recall_at_1", "repetition", ["variant", "classes", "dim"])
    each = 100 * (kept["SEE", 1000, 8] - kept["plain", 1000, 8])
    record = json.loads((dmlkit.ROOT / "data" / "evidence" / "17_sweep.json").read_text())
    record = record["numbers"]["d = 8"]
    whole = {
        name: np.array(record[key]["Recall@1"]["values"])
        for name, key in (
            ("none", "none"),
            ("both", "SEE, printed"),
            ("duplicates", "duplicates, printed"),
        )
    }
    return {
        "record": {name: figures.sample(each) for name, each in whole.items()},
        "record: both − none": _interval(whole["both"] - whole["none"]),
        "record: duplicates − none": _interval(whole["duplicates"] - whole["none"]),
        "printed lead": {name: float(lead.mean()[name]) for name in ("Cars", "SOP")},
        "study: SEE − none, 1,000 in 8": figures.sample(each),
    }
