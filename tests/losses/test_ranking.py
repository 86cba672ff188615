"""Losses of ranks against plain loops from the formulas, the library, and the B³ form."""

import math
from collections.abc import Callable, Iterator

import pytest
import torch
from pytorch_metric_learning import distances as pml_distances
from pytorch_metric_learning import losses as pml
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from dmlkit import losses
from dmlkit.losses import ranking
from dmlkit.losses.ranking import FastAPLoss, RecallAtKLoss, SmoothAPLoss, SupAPLoss
from tests.losses.oracles import LargestTensor, assert_same, batch, golden, unit

Row = list[tuple[Tensor, bool]]  # the cosines of a query with its list, and which are positive


def lists(x: Tensor, y: Tensor) -> list[Row]:
    """For each query that has a positive, the others of its batch."""
    u = unit(x)
    rows = [
        [(u[q] @ u[j], bool(y[j] == y[q])) for j in range(len(y)) if j != q] for q in range(len(y))
    ]
    return [row for row in rows if any(relevant for _, relevant in row)]


def sigmoid(u: Tensor) -> Tensor:
    return (1 + (u / 2).tanh()) / 2  # another form than that of the code


def count(
    row: Row, i: int, step: Callable[[Tensor], Tensor], relevant: bool | None = None
) -> Tensor:
    """Σ over j ≠ i of step(s_j − s_i), over all, or over the positives or the negatives alone."""
    leads = [
        s - row[i][0]
        for j, (s, positive) in enumerate(row)
        if j != i and relevant in (None, positive)
    ]
    return sum((step(u) for u in leads), torch.zeros((), dtype=torch.float64))


def with_query(row: Row, relevant: bool) -> Row:
    return [*row, (torch.ones((), dtype=torch.float64), relevant)]


def smooth_ap_loop(x: Tensor, y: Tensor, tau: float, include_query: bool) -> Tensor:
    def step(u: Tensor) -> Tensor:
        return sigmoid(u / tau)

    precisions = []
    for row in lists(x, y):
        full = with_query(row, relevant=True) if include_query else row
        P = [i for i, (_, relevant) in enumerate(full) if relevant]
        terms = [(1 + count(full, i, step, relevant=True)) / (1 + count(full, i, step)) for i in P]
        precisions.append(torch.stack(terms).mean())
    return 1 - torch.stack(precisions).mean()


def sup_ap_loop(
    x: Tensor,
    y: Tensor,
    tau: float = 0.01,
    rho: float = 100.0,
    delta: float = 0.05,
    start: float = 0.5,
    offset: float | None = 1.44,
    include_query: bool = True,
) -> Tensor:
    offset = start + 1 / (1 + math.exp(-delta / tau)) if offset is None else offset

    def h(u: Tensor) -> Tensor:
        if u <= 0:
            return sigmoid(u / tau)
        if u <= delta:
            return start + sigmoid(u / tau)
        return rho * (u - delta) + offset

    precisions = []
    for row in lists(x, y):
        full = with_query(row, relevant=True) if include_query else row
        terms = []
        for i in [i for i, (_, relevant) in enumerate(full) if relevant]:
            among = 1 + count(full, i, lambda u: u.detach().ge(0).double(), relevant=True)
            terms.append(among / (among + count(full, i, h, relevant=False)))
        precisions.append(torch.stack(terms).mean())
    return 1 - torch.stack(precisions).mean()


def recall_at_k_loop(
    x: Tensor, y: Tensor, ks: list[int], tau: float, T: float, include_query: bool
) -> Tensor:
    recalls = []
    for row in lists(x, y):
        full = with_query(row, relevant=False) if include_query else row
        P = [i for i, (_, relevant) in enumerate(full) if relevant]
        r = [1 + count(full, i, lambda u: sigmoid(u / tau)) for i in P]
        for k in ks:
            within = torch.stack([sigmoid((k - rank) / T) for rank in r]).sum()
            recalls.append(within.clamp(max=k) / min(k, len(P)))
    return 1 - torch.stack(recalls).mean()


def fast_ap_loop(x: Tensor, y: Tensor, bins: int) -> Tensor:
    width = 4 / bins
    losses_of_rows = []
    for row in lists(x, y):
        D2 = [(2 - 2 * s, positive) for s, positive in row]
        total, H_positive, H = 0.0, 0.0, 0.0
        for b in range(bins + 1):
            pulses = [((1 - (D - b * width).abs() / width).relu(), p) for D, p in D2]
            h_positive = sum(pulse for pulse, p in pulses if p)
            H_positive = H_positive + h_positive
            H = H + sum(pulse for pulse, _ in pulses)
            total = total + (h_positive * H_positive / H if H > 0 else 0)
        losses_of_rows.append(1 - total / sum(p for _, p in row))
    return torch.stack(losses_of_rows).mean()


# Against the loops


@pytest.mark.parametrize("include_query", [True, False])
@pytest.mark.parametrize("tau", [0.01, 0.1])
def test_smooth_ap_equals_the_loop(x_and_y, tau, include_query):
    x, y = x_and_y
    ours, *bounded = (SmoothAPLoss(tau, include_query, most) for most in (None, 3, 5))
    assert_same(lambda z: ours(z, y), lambda z: smooth_ap_loop(z, y, tau, include_query), x, 1e-9)
    for other in bounded:
        assert_same(lambda z, other=other: other(z, y), lambda z: ours(z, y), x, 1e-9)


@pytest.mark.parametrize("include_query", [True, False])
@pytest.mark.parametrize(
    "args",
    [
        {},
        {"start": 0.0, "offset": 1.0},
        {"tau": 0.1, "delta": 0.3},
        {"offset": None},  # continuous at δ
    ],
)
def test_sup_ap_equals_the_loop(x_and_y, args, include_query):
    x, y = x_and_y
    named = {("temperature" if name == "tau" else name): value for name, value in args.items()}
    named |= {"calibration_weight": 0, "include_query": include_query}
    ours, bounded = (SupAPLoss(**named, max_positives=most) for most in (None, 3))
    loop = lambda z: sup_ap_loop(z, y, **args, include_query=include_query)  # noqa: E731
    assert_same(lambda z: ours(z, y), loop, x, 1e-9)
    assert_same(lambda z: bounded(z, y), lambda z: ours(z, y), x, 1e-9)


@pytest.mark.parametrize("include_query", [True, False])
@pytest.mark.parametrize("ks, T", [([1], 1.0), ([1, 2, 4, 8, 16], 1.0), ([2, 3], 0.3)])
def test_recall_at_k_equals_the_loop(x_and_y, ks, T, include_query):
    x, y = x_and_y
    ours, bounded = (RecallAtKLoss(ks, 0.1, T, include_query, most) for most in (None, 3))
    loop = lambda z: recall_at_k_loop(z, y, ks, 0.1, T, include_query)  # noqa: E731
    assert_same(lambda z: ours(z, y), loop, x, 1e-9)
    assert_same(lambda z: bounded(z, y), lambda z: ours(z, y), x, 1e-9)


@pytest.mark.parametrize("bins", [1, 10, 25])
def test_fast_ap_equals_the_loop_and_the_library(x_and_y, bins):
    x, y = x_and_y
    ours = FastAPLoss(bins)
    assert_same(lambda z: ours(z, y), lambda z: fast_ap_loop(z, y, bins), x, 1e-9)
    theirs = pml.FastAPLoss(num_bins=bins)
    assert_same(lambda z: ours(z, y), lambda z: theirs(z, y), x, 1e-9)


@pytest.fixture
def _double_by_default() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("_double_by_default")  # for it sums in the default type
def test_smooth_ap_equals_the_library_where_that_is_right(generator):
    """It takes the number of samples of a class for that of classes, and a sorted batch."""
    x, y = batch(generator, classes=4, per_class=4)
    y = y.sort().values
    theirs = pml.SmoothAPLoss()
    assert_same(lambda z: SmoothAPLoss()(z, y), lambda z: theirs(z, y), x, 1e-9)


def test_calibration_is_the_contrastive_loss_of_cosines(x_and_y):
    x, y = x_and_y
    theirs = pml.ContrastiveLoss(0.9, 0.6, distance=pml_distances.CosineSimilarity())
    alone = SupAPLoss(calibration_weight=0)
    both = SupAPLoss(calibration_weight=0.3)
    assert_same(lambda z: both(z, y) - alone(z, y), lambda z: 0.3 * theirs(z, y), x, 1e-9)


# What they are meant to be


def average_precision(x: Tensor, y: Tensor) -> float:
    """As it is evaluated, the query left out of its list; means over queries with a positive."""
    values = []
    for row in lists(x, y):
        order = sorted(row, key=lambda entry: -float(entry[0]))
        found = [rank for rank, (_, positive) in enumerate(order, start=1) if positive]
        values.append(sum(n / rank for n, rank in enumerate(found, start=1)) / len(found))
    return sum(values) / len(values)


def test_sharp_steps_give_the_exact_average_precision(x_and_y):
    x, y = x_and_y
    exact = 1 - average_precision(x, y)
    smooth = SmoothAPLoss(1e-7, include_query=False)(x, y)
    bound = SupAPLoss(1e-7, 0, 1e-3, 0, 1, calibration_weight=0, include_query=False)(x, y)
    assert smooth.item() == pytest.approx(exact, abs=1e-9)
    assert bound.item() == pytest.approx(exact, abs=1e-9)


def test_sup_ap_bounds_the_loss_of_average_precision_from_above(generator):
    for _ in range(20):
        x, y = batch(generator, classes=4, per_class=3, dim=3)
        bound = SupAPLoss(calibration_weight=0, include_query=False)(x, y)
        assert bound.item() >= 1 - average_precision(x, y)


def test_a_far_mistake_has_a_gradient_under_sup_ap_alone():
    """A negative 0.8 ahead of a positive: Smooth-AP's sigmoid is flat there."""
    x, y = (part[1:] for part in golden())  # a positive pair at a cosine of 0

    def gradient(loss: Callable[[Tensor, Tensor], Tensor]) -> float:
        z = x.clone().requires_grad_()
        return torch.autograd.grad(loss(z, y), z)[0].norm().item()

    assert gradient(SmoothAPLoss()) < 1e-6
    assert gradient(SupAPLoss(calibration_weight=0)) > 1e-2


def test_the_query_in_its_own_list_costs_a_perfect_batch_of_recall_at_k():
    x, y = torch.eye(8, dtype=torch.float64).repeat_interleave(4, 0), torch.arange(8)
    y = y.repeat_interleave(4)
    x = x + 0.01 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0), dtype=x.dtype)
    published = RecallAtKLoss([1])(x, y)
    assert published > RecallAtKLoss([1], include_query=False)(x, y) > 0.1


def test_recall_does_not_pass_1(generator):
    """Its cap at k: with few candidates every positive would count for k = 1."""
    x, _ = batch(generator, classes=1, per_class=12)
    assert RecallAtKLoss([1], rank_temperature=100)(x, torch.zeros(12, dtype=torch.int64)) == 0


# With a memory


@pytest.mark.parametrize("name", ["smooth_ap", "sup_ap", "recall_at_k", "fast_ap"])
@pytest.mark.parametrize("most", [None, 9])
def test_a_memory_that_holds_the_batch_changes_nothing(name, most, x_and_y):
    """The batch against its own copies in a memory, which has places that are empty."""
    x, y = x_and_y
    inner = losses.build(name, **({} if name == "fast_ap" else {"max_positives": most}))
    memory = losses.CrossBatchMemory(inner, dim=8, size=40).double()
    assert memory(x, y).item() == pytest.approx(2 * inner(x, y).item(), abs=1e-9)


# Memory, derivatives, errors


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranking, "CHUNK", 100)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("name", ["smooth_ap", "sup_ap", "recall_at_k", "fast_ap"])
def test_chunks_do_not_count(name, x_and_y, monkeypatch):
    x, y = x_and_y
    loss = losses.build(name)

    def whole(z: Tensor) -> Tensor:
        with monkeypatch.context() as patch:
            patch.setattr(ranking, "CHUNK", 10**9)
            return loss(z, y)

    assert_same(lambda z: loss(z, y), whole, x, 1e-12)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("name", ["smooth_ap", "sup_ap", "recall_at_k", "fast_ap"])
def test_nothing_larger_than_the_pairs_is_held(name, generator):
    B = 64
    x, y = batch(generator, classes=8, per_class=8)
    x.requires_grad_()
    with LargestTensor() as seen:
        losses.build(name)(x, y).backward()
    assert B * B <= seen.elements <= B * (B + 1)


STEPS = [ranking.Sigmoid(), ranking.UpperBound(0.5, 1.0, 1.0, 1.44), ranking.Ramp()]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: type(step).__name__)
@pytest.mark.parametrize("but_itself", [True, False])
def test_counts_have_right_derivatives_of_both_orders(step, but_itself, generator, small_chunks):
    a = torch.randn(3, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    b = torch.randn(3, 50, generator=generator, dtype=torch.float64, requires_grad=True)

    def counts(a: Tensor, b: Tensor) -> Tensor:
        return ranking.soft_counts(a, b, step, but_itself=but_itself)

    assert torch.autograd.gradcheck(counts, (a, b))
    assert torch.autograd.gradgradcheck(counts, (a, b))


@pytest.mark.parametrize("step", STEPS, ids=lambda step: type(step).__name__)
def test_counts_under_vmap(step, generator):
    a, b = (torch.randn(4, 3, n, generator=generator, dtype=torch.float64) for n in (5, 7))

    def total(a: Tensor, b: Tensor) -> Tensor:
        return ranking.soft_counts(a, b, step).square().sum()

    mapped = torch.func.vmap(torch.func.grad(total))(a, b)
    each = torch.stack([torch.func.grad(total)(a[i], b[i]) for i in range(4)])
    torch.testing.assert_close(mapped, each)


def test_a_place_that_is_empty_counts_nothing():
    a = torch.zeros(1, 1, requires_grad=True)
    b = torch.tensor([[-math.inf, 1.0]], requires_grad=True)
    for step in STEPS:
        of_a, of_b = torch.autograd.grad(ranking.soft_counts(a, b, step).sum(), [a, b])
        assert torch.equal(ranking.soft_counts(a, b, step), ranking.soft_counts(a, b[:, 1:], step))
        assert of_b[0, 0] == 0
        assert of_a.isfinite().all()


@pytest.mark.parametrize("name", ["smooth_ap", "sup_ap", "recall_at_k"])
def test_a_bound_of_positives_compiles_as_one_graph_and_does_not_wait(name, generator):
    """The contract's test of both knows the default, which has no bound."""
    x, y = batch(generator)
    loss = losses.build(name, max_positives=3)
    torch.compiler.reset()
    compiled = torch.compile(loss, backend="eager", fullgraph=True)
    assert_same(lambda z: compiled(z, y), lambda z: loss(z, y), x, 1e-12)
    with FakeTensorMode(allow_non_fake_inputs=True):  # which refuses a number read by the host
        fake = torch.randn(24, 8, device="cuda", requires_grad=True)
        assert loss(fake, torch.zeros(24, dtype=torch.int64, device="cuda")).shape == ()


@pytest.mark.parametrize("name", ["smooth_ap", "sup_ap", "recall_at_k"])
def test_an_anchor_with_too_many_positives_is_refused(name, generator):
    x, y = batch(generator)
    losses.build(name, max_positives=3)(x, y)
    with pytest.raises(ValueError, match=r"max_positives is 2, .* but one has 3"):
        losses.build(name, max_positives=2)(x, y)
