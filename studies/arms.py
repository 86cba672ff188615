"""What a study compares: losses, losses with an addition, an ensemble."""

from dataclasses import replace

from dmlkit import losses
from studies.designs import designed
from studies.protocol import Arm, Protocol

#: Losses that the papers put SEC or SEE on, and normalized softmax.
SEC_ON = (
    *("triplet_all", "triplet_semihard", "n_pairs_normalized", "multi_similarity"),
    "normalized_softmax",
)
SEE_ON = ("normalized_softmax", "cosface", "arcface", "proxy_nca_pp", "proxy_anchor")
#: With as many visits of each proxy as SEE's synthetic points bring.
VISITS_ON = ("normalized_softmax", "proxy_anchor")
_SEE_POINTS, _SEE_END_RATE, _SEE_WEIGHT = 8, 0.4, 0.2  # the authors' scripts
_MEMBERS = 4  # of DREML: together they have the dimensions and the steps of one network


def arms(rules: Protocol | None = None) -> dict[str, Arm]:
    """The arms of a study: those that its rules have of their own, or else every loss of the table,
    SEC and the L2 penalty on those that SEC's paper has, SEE on those that SEE's has, and DREML.

    SEE is there as the paper writes it (a sum over the points, which reach the network), and as its
    authors' code has it (a mean, and the points reach the proxies alone), both with the curriculum
    (that entry of the table has no arm of its own). Sum and mean differ by a factor of the weight
    alone, which is tuned over a hundredfold in both. Its points show each proxy more samples: the
    arms "as many visits" train the plain loss for as many steps as show as many real ones.
    DREML has an ensemble's compute and dimensions of one network: four members, each with a
    quarter of the steps and of the dimensions (``meta_class`` is its members' loss).

    >>> arms()["normalized_softmax + SEC"].fields["constraint"]
    {'weight': 0.1, 'target': 'mean'}
    """
    if rules and rules.arms:
        return designed(rules, arms())
    names = [entry.name for entry in losses.entries()]
    plain = {n: _loss(n) for n in names if n not in ("spherical_expansion", "meta_class")}
    found = list(plain.values())
    for name in SEC_ON:
        found.append(_constrained(plain[name], "SEC", "mean", 0.1))  # the smallest of its paper
        # n² is some ten times (n - mean n)²: the same force at a tenth of the weight
        found.append(_constrained(plain[name], "L2", 0.0, 0.01))
    for name in SEE_ON:
        found += [_expanded(plain[name], detach) for detach in (False, True)]
    visits = 1 + _SEE_POINTS * _SEE_END_RATE / 2  # the rate's mean is half its end
    for name in VISITS_ON:
        found.append(replace(plain[name], name=f"{name}, as many visits", steps_factor=visits))
    found.append(_dreml())
    return {arm.name: arm for arm in found}


def _loss(name: str) -> Arm:
    own = losses.entry(name).space or {}
    made = losses.build(name, num_classes=8, dim=16)
    return Arm(
        name,
        {"loss": name},
        {f"loss_args.{key}": bounds for key, bounds in own.items()},
        learns=any(p.requires_grad for p in made.parameters()),
        points=name,
    )


def _constrained(plain: Arm, label: str, target: str | float, start: float) -> Arm:
    key = "constraint.weight"
    return replace(
        plain,
        name=f"{plain.name} + {label}",
        fields={**plain.fields, "constraint": {"weight": start, "target": target}},
        space={**plain.space, key: ("log", start / 100, start * 10)},
        off=(key,),
    )


def _expanded(plain: Arm, detach: bool) -> Arm:
    # The paper sums over the points of a sample where the code takes a mean: n times the weight.
    weight = _SEE_WEIGHT * (1 if detach else _SEE_POINTS)
    args = {
        "loss": plain.name,
        "points": _SEE_POINTS,
        "weight": weight,
        "detach": detach,
        "start_rate": 0.0,
        "end_rate": _SEE_END_RATE,
    }
    inside = {
        key.replace("loss_args.", "loss_args.loss_args."): bounds
        for key, bounds in plain.space.items()
    }
    return replace(
        plain,
        name=f"{plain.name} + SEE, {'code' if detach else 'paper'}",
        fields={"loss": "spherical_expansion", "loss_args": args},
        space={**inside, "loss_args.weight": ("log", weight / 10, weight * 10)},
        per_step="loss_args.steps",
    )


def _dreml() -> Arm:
    fields = {"loss": "meta_class", "dim": 64 // _MEMBERS}
    return Arm("dreml", fields, {}, points="dreml", steps_factor=1 / _MEMBERS, members=_MEMBERS)
