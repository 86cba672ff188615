"""Why is my loss stuck? What a Run's history, embeddings, weights and proxies say, in words."""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dmlkit import data, geometry, losses, retrieval
from dmlkit.embedding_geometry import hubness
from dmlkit.losses import ContrastiveLoss, MagFaceLoss, TripletLoss
from dmlkit.training import Run, build_sampler, device_type
from dmlkit.training.build import Objective, model_for, objective_for
from dmlkit.training.scoring import embed_batches

# A proxy is drawn at random: it must move by far more than this share of its length to be of use.
PROXY_MOVED = 0.01
FEWEST_STEPS = 20  # of a history, for its fifths to mean something
HUB_NEIGHBORS = 10
MOST_CLASSES, MOST_PER_CLASS = 100, 20  # of those that are embedded or compared: exact to a point
PULLING = ("pairs", "groups", "ranking", "hyperbolic")  # families of losses that need positives


@dataclass(frozen=True)
class Finding:
    """An illness: its name, what is seen with the numbers, what to do, the notebook on it."""

    name: str
    seen: str
    advice: str
    notebook: str


class Sign(NamedTuple):
    """A sign of an illness: a test of the numbers of ``measure``, and what is said of them.

    A number that is unknown, or that this training does not have, is NaN: no test finds it.
    """

    name: str
    found: Callable[[Any], bool]
    seen: str
    advice: str
    notebook: str


_LOWER_LR = ("Lower lr by 3 to 10 times.", "15_fair_comparison")
_FEWER_STEPS = (
    "Train on more classes, with augment=True, a smaller network, or for fewer steps, a number "
    "that is chosen on validation classes.",
    "01_measuring_retrieval",
)
#: In the order in which findings are told; every threshold has its reason above it.
SIGNS = (
    Sign(
        "collapsed",
        # Evenly spread points have a spread of 1, healthy trainings 0.3 to 1, collapsed ones about
        # 1e-4. Structured clustering makes a narrow cone (0.013) with its classes well apart.
        lambda m: m.spread <= 0.01 and m.recall <= 0.5,
        "different images share {shared:.2%} of their embeddings' squared length: all lie at "
        "nearly one point, and Recall@1 is {recall:.1%}",
        "Mine semi-hard or all triplets where you mine the hardest, lower lr, or raise the batch.",
        "03_mining",
    ),
    Sign(
        "stuck at the margin",
        # [D²ap − D²an + m]₊ ≈ m where all distances are near 0. No step of the last fifth may be
        # farther from the margin: healthy losses vary more than this.
        lambda m: m.from_margin <= 0.02 * m.margin and m.apart <= m.reach,
        "in the last {tail} steps the loss was {tail_loss:.4g}, and the margin is {margin:g}: the "
        "mean squared distance of two images is only {apart:.2g}, so that of the loss nothing but "
        "the margin is left",
        "More steps will not help, as the gradient has faded. Mine semi-hard triplets, lower lr, "
        "or begin with a smaller margin.",
        "03_mining",
    ),
    Sign(
        "no active triplets",
        # A mean hinge of 1 % of the margin: about one triplet in a hundred still teaches. It is
        # success to come so far at the end; a training that was there for half of it has idled.
        lambda m: m.idle >= 0.9,
        "in {idle:.0%} of the last {half} steps the loss was below 1 % of the margin {margin:g}: "
        "the batches taught next to nothing",
        "Train on more classes, put more of them into a batch, raise the margin, mine harder "
        "triplets, or stop earlier.",
        "03_mining",
    ),
    Sign(
        "too few positives",
        lambda m: m.with_positive < 0.5,  # most images have nobody to be pulled to
        "only {with_positive:.0%} of the {batch} images of a batch have another of their class "
        "beside them; the others are pushed, and pulled to nobody",
        "Take the pk sampler with per_class=4 or more, or a proxy loss, which needs no positives.",
        "04_batches",
    ),
    Sign(
        "idle proxies",
        # A few rare classes are no illness; one in twenty is a lasting loss of training data.
        lambda m: max(m.still, m.left_out) > 0.05,
        "of {proxies} classes, {left_out:.0%} were in no batch of the training, and the proxies of "
        "{still:.0%} moved by less than 1% of their length",
        "Where classes are in no batch, train for more steps or choose another sampler (episodic "
        "passes over small classes); where proxies stay, raise loss_lr_factor.",
        "07_proxies",
    ),
    Sign(
        "learning rate too high",
        # Healthy networks went 0.3 to 2.2 of their first length away from a random start, which as
        # a random walk is 0.02 to 0.13 for each step.
        lambda m: m.weights_step > 0.3,
        "the weights ended {weights:.1f} times their first length from where they began, as by "
        "random steps of {weights_step:.0%} each (lr is {lr:g})",
        *_LOWER_LR,
    ),
    Sign(
        "learning rate too high",
        # Four standard errors are beyond chance, even among many Runs.
        lambda m: m.last_loss - m.first_loss > 4 * m.error,
        "the mean loss rose from {first_loss:.4g} to {last_loss:.4g}",
        *_LOWER_LR,
    ),
    Sign(
        "learning rate too high",
        # Gradients fall as a training succeeds, and with batch normalization also as weights grow.
        lambda m: m.last_gradient > 10 * m.first_gradient > 0,
        "the norm of the gradient rose from {first_gradient:.3g} to {last_gradient:.3g}",
        *_LOWER_LR,
    ),
    Sign(
        "learning rate too low",
        lambda m: (
            m.weights < 0.1
        ),  # a network that begins at random must leave its start: see above
        "the weights moved by only {weights:.1%} of their length (lr is {lr:g}), and the mean loss "
        "went from {first_loss:.4g} to {last_loss:.4g}",
        "Raise lr by 3 to 10 times, or train longer.",
        "15_fair_comparison",
    ),
    Sign(
        "dimensions unused",
        lambda m: m.rank < min(m.axes, m.dim / 4),  # k axes have 2ᵏ orthants, one for each class
        "embeddings vary along {rank:.1f} of {dim} dimensions (effective rank), and to keep "
        "{classes} classes apart takes about {axes:.1f}",
        "Lower lr, take a loss that looks at negatives of many classes, or a larger batch.",
        "16_what_matters",
    ),
    Sign(
        "norms adrift",
        # A norm ten times as long turns ten times less by the same step (a hundred times under
        # SGD): the rate is not the chosen one. In healthy trainings norms grew 1.1 to 7 times.
        lambda m: not m.first_norm / 10 < m.last_norm < m.first_norm * 10,
        "the mean norm of embeddings went from {first_norm:.3g} to {last_norm:.3g}: a step now "
        "turns them by quite another angle than at the start",
        "Lower lr, add the spherical constraint (constraint={'weight': 1}), or a weight decay.",
        "09_norms_and_gradients",
    ),
    Sign(
        "over-fitted classes",
        lambda m: m.best - m.now > 0.05,  # five standard errors, at 0.8 among 2,000 images
        "Recall@1 on unseen classes fell from {best:.1%} after step {best_step} to {now:.1%}",
        *_FEWER_STEPS,
    ),
    Sign(
        "over-fitted classes",
        # Unseen classes cost 0.03 to 0.1 after 300 training classes, and up to 0.35 after 40.
        # Beyond 0.4, most of what was learned is of the training classes only.
        lambda m: m.seen - m.unseen > 0.4,
        "among {compared} classes each, Recall@1 is {seen:.1%} on those trained on and "
        "{unseen:.1%} on unseen ones (40 points are far)",
        *_FEWER_STEPS,
    ),
    Sign(
        "hubs",
        # Healthy embeddings have 0.1 to 0.8, the raw pixels of Glyphs 2.3: from 2 on, hubs are as
        # bad as before anything was learned.
        lambda m: m.skewness > 2,
        "{anti_hubs:.0%} of {voters} images are among the 10 nearest of none, since a few take "
        "their places: the skewness of N_10 is {skewness:.1f}, by chance about 0.3",
        "Mend first what else is found; else train longer, with a loss that spreads classes "
        "evenly, or subtract the mean of the embeddings before a search.",
        "18_failures_and_hubs",
    ),
)


def diagnose(run: Run, device: str = "auto") -> list[Finding]:
    """What is wrong with a Run; nothing where it is healthy.

    The thresholds are in the table ``SIGNS``, each with its reason. Up to 100 training classes
    of 20 images are embedded, on ``device``. Where the training images are not here, a warning
    says so, and what needs them is left out, as is what needs a pretrained network's first weights.

    Raises ValueError for an unknown device, and OSError for a Run without its files.
    """
    numbers = measure(run, device_type(device))
    m, findings = SimpleNamespace(**numbers), dict[str, Finding]()
    for name, found, words, advice, notebook in SIGNS:
        if found(m):
            signs = [findings[name].seen] if name in findings else []
            seen = "; ".join([*signs, words.format(**numbers)])
            findings[name] = Finding(name, seen, advice, notebook)
    return list(findings.values())


def measure(run: Run, device: str) -> dict[str, Any]:
    """The numbers that illnesses are told by; NaN for what is unknown, or not of this training."""
    objective = run.objective()
    try:
        train = data.load(run.experiment.data, "train", **run.experiment.data_args)
    except (OSError, ValueError) as error:
        warnings.warn(f"batches and training classes were not examined: {error}", stacklevel=3)
        train = None
    batches = _batches(run, train)
    return {
        "recall": run.scores["recall_at_1"],
        "lr": run.experiment.lr,
        **_of_embeddings(run),
        **_of_loss(run, objective),
        **_of_norms(run),
        **_of_weights(run),
        **_of_positives(run, batches),
        **_of_proxies(run, objective, batches),
        **_of_unseen_classes(run, train, device),
    }


def _of_embeddings(run: Run) -> dict[str, Any]:
    """Spread, effective rank and hubs, of the unseen classes as the metric compares them.

    The effective rank is exp(−Σ p log p), p the shares of the variance by principal axis (Roy and
    Vetterli 2007).
    """
    x, metric = torch.from_numpy(run.embeddings), run.experiment.metric
    z, classes = x.double(), len(np.unique(run.labels))
    directions = geometry.normalize(z)
    if metric in ("hamming", "cosine"):
        z = directions if metric == "cosine" else (x > 0).double() * 2 - 1
    p = torch.linalg.svdvals(z - z.mean(dim=0)).square()
    p = p / p.sum().clamp_min(torch.finfo(p.dtype).tiny)
    few = _some(run.labels, MOST_CLASSES)
    hubs = {"skewness": math.nan, "anti_hubs": math.nan}
    if len(few) > 10 * HUB_NEIGHBORS:
        hubs |= hubness(x[few], HUB_NEIGHBORS, metric)
    return {
        "spread": _spread(z),
        "shared": 1 - _spread(z),
        "apart": 2 * _spread(directions),
        "rank": float(torch.special.entr(p).sum().exp()),
        "dim": z.shape[1],
        "classes": classes,
        "axes": np.log2(classes),
        "voters": len(few),
        **hubs,
    }


def _of_loss(run: Run, objective: Objective) -> dict[str, Any]:
    """The loss by step, beside its margin, and whether it rose beyond chance."""
    value, loss = run.history["loss"].to_numpy(), objective.loss
    while isinstance(inner := getattr(loss, "inner", None), nn.Module):
        loss = inner  # of XBM and SEE
    margin = reach = idle = math.nan
    tail, half = value[-max(len(value) // 5, 1) :], value[len(value) // 2 :]
    if isinstance(loss, TripletLoss):
        margin = reach = loss.margin  # a triplet's margin is of squared distances
        idle = float((half <= 0.01 * margin).mean())
    elif isinstance(loss, ContrastiveLoss):
        margin, reach = loss.negative_margin, loss.negative_margin**2
    steady = value[: int(len(value) * (1 - run.experiment.lr_decay))]
    steady = steady if len(steady) >= FEWEST_STEPS else value
    means = [part.mean() for part in np.array_split(steady, min(5, len(steady)))]
    # From neighboring steps, whose differences no trend enters.
    error = np.diff(steady).std() * np.sqrt(5 / len(steady))
    # A loss with a schedule or a memory is another one at the end, and so is MagFace, whose margin
    # grows with the norms: their rise means nothing.
    scheduled = any(key.endswith("step") for key in objective.state_dict())
    scheduled |= isinstance(loss, MagFaceLoss)
    return {
        "margin": margin,
        "reach": reach,
        "tail": len(tail),
        "tail_loss": tail.mean(),
        "from_margin": np.abs(tail - margin).max(),
        "half": len(half),
        "idle": idle,
        "first_loss": means[0],
        "last_loss": means[-1],
        "error": math.nan if scheduled or len(value) < FEWEST_STEPS else error,
    }


def _of_norms(run: Run) -> dict[str, float]:
    """How the norms of the gradient and of embeddings changed from the start to the end."""
    gradient, norm = run.history["gradient_norm"], run.history["norm_mean"]
    tenths = np.array_split(gradient, min(10, len(gradient)))
    few = min(5, len(norm) // 2 + 1)
    return {
        "first_gradient": np.median(tenths[0]) if len(gradient) >= FEWEST_STEPS else math.nan,
        "last_gradient": np.median(tenths[-1]),
        "first_norm": norm[:few].median(),
        "last_norm": norm[-few:].median(),
    }


def _of_weights(run: Run) -> dict[str, float]:
    """‖w − w₀‖ / ‖w₀‖ over all weights, and the random step that makes it."""
    if run.experiment.model_args.get("pretrained"):
        return {"weights": math.nan, "weights_step": math.nan}
    both = model_for(run.experiment, torch.zeros(run.image_shape)), run.model()
    w0, w = (nn.utils.parameters_to_vector(m.parameters()).detach() for m in both)
    moved = float((w - w0).norm() / w0.norm())
    return {"weights": moved, "weights_step": moved / math.sqrt(run.experiment.steps)}


def _batches(run: Run, train: data.ImageSet | None) -> list[NDArray[np.int64]]:
    """The labels of every batch of the training, until each class was in one."""
    found: list[NDArray[np.int64]] = []
    if train is not None:
        sampler, missing = build_sampler(run.experiment, train), set(train.labels)
        while len(found) < run.experiment.steps and (missing or len(found) < FEWEST_STEPS):
            found.append(train.labels[sampler(len(found))])
            missing.difference_update(found[-1])
    return found


def _of_positives(run: Run, batches: list[NDArray[np.int64]]) -> dict[str, float]:
    """The share of a batch that has a positive in it, under a loss that pulls pairs together."""
    entry = losses.entry(run.experiment.loss)
    if entry.family not in PULLING or entry.wraps is not None or not batches:
        return {"with_positive": math.nan, "batch": math.nan}
    counts = [np.unique(b, return_counts=True)[1] for b in batches[:FEWEST_STEPS]]
    share = np.mean([c[c > 1].sum() / c.sum() for c in counts])
    return {"with_positive": share, "batch": counts[0].sum()}


def _of_proxies(
    run: Run, objective: Objective, batches: list[NDArray[np.int64]]
) -> dict[str, float]:
    """The shares of proxies that are where they were drawn, or whose class was in no batch."""
    now = objective.state_dict()
    name = next((key for key in now if key.rpartition(".")[2] == "proxies"), None)
    if name is None:
        return {"proxies": 0, "still": 0.0, "left_out": 0.0}
    first = objective_for(run.experiment, run.num_classes).state_dict()[name]
    moved = (now[name] - first).flatten(1).norm(dim=1) / first.flatten(1).norm(dim=1)  # (C,)
    meant_to_move = run.experiment.loss_lr_factor > 0
    visited = len(set(np.concatenate(batches))) if batches else len(moved)
    return {
        "proxies": len(moved),
        "still": float((moved < PROXY_MOVED).float().mean()) * meant_to_move,
        "left_out": 1 - visited / len(moved),
    }


def _of_unseen_classes(run: Run, train: data.ImageSet | None, device: str) -> dict[str, Any]:
    """Recall@1 on unseen classes by step, where followed, and beside that on trained ones."""
    column = f"{run.experiment.split}_recall_at_1"
    found = dict.fromkeys(("best", "best_step", "now", "compared", "seen", "unseen"), math.nan)
    if column in run.history:
        followed = run.history.set_index("step")[column].dropna()
        found |= {"best": followed.max(), "best_step": followed.idxmax(), "now": followed.iloc[-1]}
    if train is None:
        return found
    labels = (train.labels, run.labels)
    classes = min(MOST_CLASSES, *(int((np.bincount(y) > 1).sum()) for y in labels))
    if classes < 2:
        return found
    rows = [_some(y, classes) for y in labels]
    parts = (train.images[part] for part in np.array_split(rows[0], len(rows[0]) // 256 + 1))
    x = (embed_batches(run.model().to(device), parts), torch.from_numpy(run.embeddings[rows[1]]))
    recalls = [
        retrieval.recall_at_k(x[i], labels[i][rows[i]], ks=[1], metric=run.experiment.metric)[1]
        for i in range(2)
    ]
    return found | {"compared": classes, "seen": recalls[0], "unseen": recalls[1]}


def _spread(z: Tensor) -> float:
    """The variance's share of the mean squared length, 1 − ‖mean z‖² / mean ‖z‖²: 0 to 1."""
    length = z.square().sum(dim=1).mean().clamp_min(torch.finfo(z.dtype).tiny)
    return float((z - z.mean(dim=0)).square().sum(dim=1).mean() / length)


def _some(labels: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
    """Indices of a few images each of some classes that have two or more, the same each time."""
    known, counts = np.unique(labels, return_counts=True)
    known = np.random.default_rng(0).permutation(known[counts > 1])[:classes]
    rows = [np.flatnonzero(labels == k)[:MOST_PER_CLASS] for k in known]
    return np.concatenate([np.empty(0, dtype=np.int64), *rows])
