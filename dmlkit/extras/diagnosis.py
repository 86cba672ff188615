"""Why is my loss stuck? What a Run's history, embeddings, weights and proxies say, in words."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor, nn

from dmlkit import data, geometry, losses, retrieval
from dmlkit.losses import ContrastiveLoss, TripletLoss
from dmlkit.training import Run, build_sampler, device_type
from dmlkit.training.build import model_for, objective_for
from dmlkit.training.scoring import embed_batches

# Evenly spread points have a spread of 1, healthy trainings 0.3 to 1, collapsed ones about 1e-4.
# Structured clustering makes a narrow cone (0.013) with its classes well apart: hence the second.
SPREAD, STILL_FOUND = 0.01, 0.5
# No step of the last fifth may be farther from the margin: healthy losses vary more than this.
AT_MARGIN = 0.02
# A mean hinge of 1 % of the margin: about one triplet in a hundred still teaches. A training that
# comes so far at its end has succeeded; one that was there for half of it has idled.
IDLE_LOSS, IDLE_SHARE = 0.01, 0.9
# Below this share of a batch, most images have nobody to be pulled to.
WITH_POSITIVE = 0.5
# A few rare classes are no illness; one in twenty is a lasting loss of training data.
CLASSES_LEFT_OUT = 0.05
# A proxy is drawn at random: it must move by far more than this share of its length to be of use.
PROXY_MOVED = 0.01
# Shares of the first weights' length. A network that begins at random must leave its start:
# healthy ones went 0.3 to 2.2 away, which as a random walk is 0.02 to 0.13 for each step.
WEIGHTS_STAYED, STEP_OF_WEIGHTS = 0.1, 0.3
# Gradients fall as a training succeeds, and with batch normalization also as weights grow.
GRADIENT_RISE = 10.0
# Standard errors by which a mean loss must have risen: beyond chance, even among many Runs.
SURE = 4.0
# A norm ten times as long turns ten times less by the same step (a hundred times under SGD): the
# learning rate is no longer the one that was chosen. In healthy trainings it grew 1.1 to 7 times.
NORM_FACTOR = 10.0
# Recall@1, among equally many classes: unseen ones cost 0.03 to 0.1 after 300 training classes, and
# up to 0.35 after 40. Beyond 0.4, most of what was learned is of the training classes only.
GAP = 0.4
# Five standard errors of a Recall@1 of 0.8 among 2,000 images.
FELL_BACK = 0.05
# Votes at random have a skewness near 0.3, healthy embeddings 0.1 to 0.8, and the raw pixels of
# Glyphs 2.3: from 2 on, hubs are as bad as before anything was learned.
HUB_SKEWNESS, HUB_NEIGHBORS = 2.0, 10
FEWEST_STEPS = 20  # of a history, for its fifths to mean something
MOST_CLASSES, MOST_PER_CLASS = 100, 20  # of those that are embedded or compared: exact to a point
PULLING = ("pairs", "groups", "ranking", "hyperbolic")  # families of losses that need positives


@dataclass(frozen=True)
class Finding:
    """An illness: its name, what is seen with the numbers, what to do, the notebook on it."""

    name: str
    seen: str
    advice: str
    notebook: str


_Check = Callable[["_Case"], str]  # what is seen of an illness, or nothing
_CHECKS: list[tuple[_Check, str, str, str]] = []


def diagnose(run: Run, device: str = "auto") -> list[Finding]:
    """What is wrong with a Run; nothing where it is healthy.

    The thresholds are constants of this module, each with its reason. Up to 100 training classes
    of 20 images are embedded, on ``device``. Where the training images are not here, a warning
    says so, and what needs them is left out, as is what needs a pretrained network's first weights.

    Raises ValueError for an unknown device, and OSError for a Run without its files.
    """
    case = _Case(run, device_type(device))
    return [Finding(n, seen, *rest) for check, n, *rest in _CHECKS if (seen := check(case))]


def _illness(name: str, advice: str, notebook: str) -> Callable[[_Check], _Check]:
    """Enter a check into the table, in the order in which findings are told."""

    def enter(check: _Check) -> _Check:
        _CHECKS.append((check, name, advice, notebook))
        return check

    return enter


class _Case:
    """A Run, and what several checks look at."""

    def __init__(self, run: Run, device: str) -> None:
        self.run, self.experiment, self.device = run, run.experiment, device
        self.value = run.history["loss"].to_numpy()
        self.recall = run.scores["recall_at_1"]
        self.objective = run.objective()
        self.loss = self.objective.loss
        while isinstance(inner := getattr(self.loss, "inner", None), nn.Module):
            self.loss = inner  # of XBM and SEE

    @cached_property
    def train(self) -> data.ImageSet | None:
        try:
            return data.load(self.experiment.data, "train", **self.experiment.data_args)
        except (OSError, ValueError) as error:
            warnings.warn(f"batches and training classes were not examined: {error}", stacklevel=4)
            return None

    @cached_property
    def seen_by_metric(self) -> Tensor:
        """The unseen classes' embeddings (N, d) as the metric compares them, in float64."""
        x, metric = torch.from_numpy(self.run.embeddings).double(), self.experiment.metric
        if metric == "hamming":
            return (x > 0).double() * 2 - 1
        return geometry.normalize(x) if metric == "cosine" else x

    @cached_property
    def weights_moved(self) -> float | None:
        """‖w − w₀‖ / ‖w₀‖ over all weights; None for a network that began pretrained."""
        if self.experiment.model_args.get("pretrained"):
            return None
        both = model_for(self.experiment, torch.zeros(self.run.image_shape)), self.run.model()
        w0, w = (nn.utils.parameters_to_vector(m.parameters()).detach() for m in both)
        return float((w - w0).norm() / w0.norm())

    @cached_property
    def fifths(self) -> tuple[NDArray[np.float64], float]:
        """Mean loss of each fifth of the steps before lr falls, and a difference's standard error.

        The error is taken from neighboring steps, whose differences no trend enters.
        """
        steady = self.value[: int(len(self.value) * (1 - self.experiment.lr_decay))]
        steady = steady if len(steady) >= FEWEST_STEPS else self.value
        means = np.array([part.mean() for part in np.array_split(steady, min(5, len(steady)))])
        return means, float(np.diff(steady).std() * np.sqrt(5 / len(steady)))

    @cached_property
    def batches(self) -> list[NDArray[np.int64]]:
        """The labels of every batch of the training, until each class was in one."""
        if self.train is None:
            return []
        sampler, missing = build_sampler(self.experiment, self.train), set(self.train.labels)
        found: list[NDArray[np.int64]] = []
        while len(found) < self.experiment.steps and (missing or len(found) < FEWEST_STEPS):
            found.append(self.train.labels[sampler(len(found))])
            missing.difference_update(found[-1])
        return found


@_illness(
    "collapsed",
    "Mine semi-hard or all triplets where you mine the hardest, lower lr, or raise the batch.",
    "03_mining",
)
def collapsed(case: _Case) -> str:
    """All images are at one point, and classes are lost in it."""
    spread = _spread(case.seen_by_metric)
    if spread > SPREAD or case.recall > STILL_FOUND:
        return ""
    return (
        f"different images share {1 - spread:.2%} of their embeddings' squared length: all lie at "
        f"nearly one point, and Recall@1 is {case.recall:.1%}"
    )


@_illness(
    "stuck at the margin",
    "More steps will not help, as the gradient has faded. Mine semi-hard triplets, lower lr, or "
    "begin with a smaller margin.",
    "03_mining",
)
def stuck_at_the_margin(case: _Case) -> str:
    """The loss is its own margin, since all distances are near 0: [D²ap − D²an + m]₊ ≈ m."""
    if isinstance(case.loss, TripletLoss):
        margin = reach = case.loss.margin  # a triplet's margin is of squared distances
    elif isinstance(case.loss, ContrastiveLoss):
        margin, reach = case.loss.negative_margin, case.loss.negative_margin**2
    else:
        return ""
    tail = case.value[-max(len(case.value) // 5, 1) :]
    apart = 2 * _spread(geometry.normalize(torch.from_numpy(case.run.embeddings).double()))
    if np.abs(tail - margin).max() > AT_MARGIN * margin or apart > reach:
        return ""
    return (
        f"in the last {len(tail)} steps the loss was {tail.mean():.4g}, and the margin is "
        f"{margin:g}: the mean squared distance of two images is only {apart:.2g}, so that of "
        "the loss nothing but the margin is left"
    )


@_illness(
    "no active triplets",
    "Train on more classes, put more of them into a batch, raise the margin, mine harder "
    "triplets, or stop earlier.",
    "03_mining",
)
def no_active_triplets(case: _Case) -> str:
    """The triplets that the loss chooses were all satisfied long before the end."""
    if not isinstance(case.loss, TripletLoss):
        return ""
    half = case.value[len(case.value) // 2 :]
    idle = float((half <= IDLE_LOSS * case.loss.margin).mean())
    if idle < IDLE_SHARE:
        return ""
    return (
        f"in {idle:.0%} of the last {len(half)} steps the loss was below 1 % of the margin "
        f"{case.loss.margin:g}: the batches taught next to nothing"
    )


@_illness(
    "too few positives",
    "Take the pk sampler with per_class=4 or more, or a proxy loss, which needs no positives.",
    "03_mining",
)
def too_few_positives(case: _Case) -> str:
    """Most images of a batch are alone in their class, under a loss that pulls pairs together."""
    entry = losses.entry(case.experiment.loss)
    if entry.family not in PULLING or entry.wraps is not None or not case.batches:
        return ""
    counts = [np.unique(b, return_counts=True)[1] for b in case.batches[:FEWEST_STEPS]]
    share = float(np.mean([c[c > 1].sum() / c.sum() for c in counts]))
    if share >= WITH_POSITIVE:
        return ""
    return (
        f"only {share:.0%} of the {counts[0].sum()} images of a batch have another of their class "
        "beside them; the others are pushed, and pulled to nobody"
    )


@_illness(
    "idle proxies",
    "Where classes are in no batch, train for more steps or choose another sampler (episodic "
    "passes over small classes); where proxies stay, raise loss_lr_factor.",
    "05_proxies",
)
def idle_proxies(case: _Case) -> str:
    """Proxies whose class is never in a batch, or that are where they were drawn."""
    now = case.objective.state_dict()
    name = next((key for key in now if key.rpartition(".")[2] == "proxies"), None)
    if name is None:
        return ""
    first = objective_for(case.experiment, case.run.num_classes).state_dict()[name]
    moved = (now[name] - first).flatten(1).norm(dim=1) / first.flatten(1).norm(dim=1)  # (C,)
    still = float((moved < PROXY_MOVED).float().mean())
    still *= case.experiment.loss_lr_factor > 0  # else they are meant to stay
    visited = len(set(np.concatenate(case.batches))) if case.batches else len(moved)
    left_out = 1 - visited / len(moved)
    if max(still, left_out) <= CLASSES_LEFT_OUT:
        return ""
    return (
        f"of {len(moved)} classes, {left_out:.0%} were in no batch of the training, and the "
        f"proxies of {still:.0%} moved by less than {PROXY_MOVED:.0%} of their length"
    )


@_illness("learning rate too high", "Lower lr by 3 to 10 times.", "12_fair_comparison")
def learning_rate_too_high(case: _Case) -> str:
    """Weights were thrown about, the loss ended above its start, or the gradient exploded."""
    signs = []
    step = (case.weights_moved or 0) / np.sqrt(case.experiment.steps)
    if step > STEP_OF_WEIGHTS:
        signs.append(
            f"the weights ended {case.weights_moved:.1f} times their first length from where they "
            f"began, as by random steps of {step:.0%} each (lr is {case.experiment.lr:g})"
        )
    means, error = case.fifths
    # A loss with a schedule or a memory is another one at the end: its rise means nothing.
    scheduled = any(key.endswith("step") for key in case.objective.state_dict())
    long = len(case.value) >= FEWEST_STEPS
    if long and not scheduled and means[-1] - means[0] > SURE * error:
        signs.append(f"the mean loss rose from {means[0]:.4g} to {means[-1]:.4g}")
    gradients = np.array_split(case.run.history["gradient_norm"], min(10, len(case.value)))
    first, last = np.median(gradients[0]), np.median(gradients[-1])
    if long and last > GRADIENT_RISE * first > 0:
        signs.append(f"the norm of the gradient rose from {first:.3g} to {last:.3g}")
    return "; ".join(signs)


@_illness(
    "learning rate too low", "Raise lr by 3 to 10 times, or train longer.", "12_fair_comparison"
)
def learning_rate_too_low(case: _Case) -> str:
    """The weights are still near where they began."""
    moved, (means, _) = case.weights_moved, case.fifths
    if moved is None or moved >= WEIGHTS_STAYED:
        return ""
    return (
        f"the weights moved by only {moved:.1%} of their length (lr is {case.experiment.lr:g}), "
        f"and the mean loss went from {means[0]:.4g} to {means[-1]:.4g}"
    )


@_illness(
    "dimensions unused",
    "Lower lr, take a loss that looks at negatives of many classes, or a larger batch.",
    "13_what_matters",
)
def dimensions_unused(case: _Case) -> str:
    """The effective rank is too small to give every class an orthant of its own.

    It is exp(−Σ p log p), p the shares of the variance by principal axis (Roy and Vetterli 2007);
    k axes have 2ᵏ orthants.
    """
    z = case.seen_by_metric
    p = torch.linalg.svdvals(z - z.mean(dim=0)).square()
    rank = float(torch.special.entr(p / p.sum().clamp_min(torch.finfo(p.dtype).tiny)).sum().exp())
    classes, dim = len(np.unique(case.run.labels)), z.shape[1]
    if rank >= min(np.log2(classes), dim / 4):
        return ""
    return (
        f"embeddings vary along {rank:.1f} of {dim} dimensions (effective rank), and to keep "
        f"{classes} classes apart takes about {np.log2(classes):.1f}"
    )


@_illness(
    "norms adrift",
    "Lower lr, add the spherical constraint (constraint={'weight': 1}), or a weight decay.",
    "07_norms_and_gradients",
)
def norms_adrift(case: _Case) -> str:
    """Norms of embeddings have grown or shrunk so far that lr means something else."""
    norms = case.run.history["norm_mean"]
    few = min(5, len(norms) // 2 + 1)
    first, last = float(norms[:few].median()), float(norms[-few:].median())
    if first / NORM_FACTOR < last < first * NORM_FACTOR:
        return ""
    return (
        f"the mean norm of embeddings went from {first:.3g} to {last:.3g}: a step now turns them "
        "by quite another angle than at the start"
    )


@_illness(
    "over-fitted classes",
    "Train on more classes, with augment=True, a smaller network, or for fewer steps, a number "
    "that is chosen on validation classes.",
    "01_measuring_retrieval",
)
def over_fitted(case: _Case) -> str:
    """Classes trained on are found far better than others, or others were once found better."""
    signs = []
    column = f"{case.experiment.split}_recall_at_1"
    if column in case.run.history:
        followed = case.run.history.set_index("step")[column].dropna()
        best, now = followed.max(), followed.iloc[-1]
        if best - now > FELL_BACK:
            signs.append(
                f"Recall@1 on unseen classes fell from {best:.1%} after step {followed.idxmax()} "
                f"to {now:.1%}"
            )
    classes, seen, unseen = _recalls(case)
    if seen - unseen > GAP:
        signs.append(
            f"among {classes} classes each, Recall@1 is {seen:.1%} on those trained on and "
            f"{unseen:.1%} on unseen ones ({100 * GAP:.0f} points are far)"
        )
    return "; ".join(signs)


@_illness(
    "hubs",
    "Mend first what else is found; else train longer, with a loss that spreads classes evenly, "
    "or subtract the mean of the embeddings before a search.",
    "14_embedding_maps",
)
def hubs(case: _Case) -> str:
    """Few images are neighbors of very many: the skewness of N_10 (Radovanović et al. 2010)."""
    chosen = _some(case.run.labels, MOST_CLASSES)
    if len(chosen) <= 10 * HUB_NEIGHBORS:
        return ""
    x, metric = torch.from_numpy(case.run.embeddings[chosen]), case.experiment.metric
    near, _ = retrieval.nearest_neighbors(x, HUB_NEIGHBORS, metric=metric)
    votes = np.bincount(np.asarray(near).ravel(), minlength=len(x))
    skewness = float(stats.skew(votes))
    if not skewness > HUB_SKEWNESS:
        return ""
    return (
        f"one image is among the {HUB_NEIGHBORS} nearest of {votes.max()} of {len(x)} images, and "
        f"{np.mean(votes == 0):.0%} of all are so of none: the skewness is {skewness:.1f}, by "
        "chance about 0.3"
    )


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


def _recalls(case: _Case) -> tuple[int, float, float]:
    """Recall@1 among equally many seen and unseen classes; the same twice where that is unknown."""
    if case.train is None:
        return 0, case.recall, case.recall
    labels, images = (case.train.labels, case.run.labels), case.train.images
    classes = min(MOST_CLASSES, *(int((np.bincount(y) > 1).sum()) for y in labels))
    if classes < 2:
        return classes, case.recall, case.recall
    rows = [_some(y, classes) for y in labels]
    parts = (images[part] for part in np.array_split(rows[0], len(rows[0]) // 256 + 1))
    seen = embed_batches(case.run.model().to(case.device), parts)
    both = zip((seen, torch.from_numpy(case.run.embeddings[rows[1]])), labels, rows, strict=True)
    metric = case.experiment.metric
    found = [retrieval.recall_at_k(x, y[r], ks=[1], metric=metric)[1] for x, y, r in both]
    return classes, found[0], found[1]
