"""The ledger as it is shown: each claim, and a row for each condition that it was tested in."""

import fnmatch
import string
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from dmlkit import recipes
from dmlkit.files import write_between
from dmlkit.training import Experiment
from studies import choice, confirm
from studies.answers import conditions, kept
from studies.claims import (
    AGAIN,
    DECIDED,
    FAILED,
    FEW,
    IDLE,
    TABLE,
    WORDS,
    is_question,
    placed,
    reason,
    table,
)
from studies.printed import printed, printed_ranks

#: Of ``rows``.
COLUMNS = (
    *("claim", "condition", "", "effect", "95 % interval", "one comparison finds in 4 of 5"),
    *("printed", "its losses (printed)", "n", "Holm", "what else", "figure"),
)
#: Units of which the ledger has points, a hundredth each.
_IN_POINTS = ("Recall@1", "Recall@K", "NMI")
#: Words of an effect that is there, if not as large as printed.
_FOUND = ("holds here", "smaller than claimed", "smaller here", "above 0 here")
_SOURCES = {
    "sec_meta_review": "the meta-reviewer of SEC (not the paper, in these words)",
    "see_extended_abstract": "SEE's extended abstract",
    "unbiased_evaluation": "the study of twelve losses",
}
_OTHER = {
    "repository": "; its triplet loss, the mean over all triplets with a margin of 1, is another "
    "than our `triplet_all`"
}
_METHODS = {"sec_meta_review": "SEC", "see_extended_abstract": "SEE"}


def rows(frame: pd.DataFrame) -> Iterator[tuple[str, ...]]:
    """Every row in the words of ``COLUMNS``; what is unknown is empty. A word that falls after
    Holm's correction is in italics."""
    for _, row in frame.iterrows():
        about = table()[row["claim"]]
        points = about["unit"] in _IN_POINTS and row["condition"] != TABLE
        effect, low, high = (_number(row[key], points, "+") for key in ("effect", "low", "high"))
        n = str(row["n"])
        if row["effective"] < row["n"]:
            n += f" ({row['effective']:.1f})"
        stands = "stands" if row["stands"] else "falls"
        holm = f"{stands}, p = {row['holm']:.2g}" if row["word"] in DECIDED else ""
        own = row["measure"].removeprefix(about["measure"]).removeprefix("; ")
        word, why = row["word"] or "a clock: no word", reason(row)
        own = own.replace(f"{why}: ", "") if why else own
        yield (
            row["claim"], placed(row["condition"]),
            f"*{word}*" if holm.startswith("falls") else word + f" ({why})" * bool(why),
            effect, f"[{low}, {high}]" * bool(low), _number(row["least"], points),
            _number(row["printed"], points), _losses(row), n, holm, own, row["figure"],
        )  # fmt: skip


def _number(value: float | None, points: bool, sign: str = "") -> str:
    if value is None or pd.isna(value):
        return ""
    return f"{100 * value:{sign}.2f}" if points else f"{value:{sign}.3g}"


def _losses(row: pd.Series) -> str:
    """Each loss of a mean, with the sizes that its authors print, by data set; their median, and
    what is left out."""
    if not isinstance(row["parts"], dict):  # a table, or a check
        return ""
    said = [f"{name} {100 * part:+.1f}{_of_loss(row, name)}" for name, part in row["parts"].items()]
    if isinstance(row["center"], list | tuple):
        middle, low, high = (100 * end for end in row["center"])
        said.append(f"**median {middle:+.1f} [{low:+.1f}, {high:+.1f}]**")
    said += [f"search failed: {name}" for name in row["failed"]]
    carried = row["carried"]
    return ", ".join(said) + f"; another word without {', '.join(carried)}" * bool(len(carried))


def _of_loss(row: pd.Series, loss: str) -> str:
    sizes = sorted(100 * size for size in printed(row["claim"], (loss,)).values())
    ends = dict.fromkeys(f"{size:.1f}" for size in (*sizes[:1], *sizes[-1:]))
    return f" ({' to '.join(ends)})" * bool(ends)


def outcome(word: str, stands: bool) -> str:
    """Whether a test found what was claimed, ruled it out, or is open: its word fell, or is none.

    >>> outcome("fails here", True), outcome("fails here", False)
    ('ruled out', 'open')
    """
    if not stands or word not in DECIDED:
        return "open"
    return "found" if word in _FOUND else "ruled out"


def counts(frame: pd.DataFrame) -> dict[str, int]:
    """How many rows of evidence have which ``outcome``; rows of longer searches repeat others."""
    rows = _counted(frame)
    found = [outcome(*row) for row in rows[["word", "stands"]].itertuples(index=False)]
    return {each: found.count(each) for each in ("found", "ruled out", "open")}


def _counted(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of evidence of what was claimed, but for what repeats others."""
    asked = frame["claim"].map(is_question).astype(bool)
    return frame[frame["word"].isin(WORDS) & (frame["condition"] != AGAIN) & ~asked]


def in_short(frame: pd.DataFrame) -> str:
    """The ledger in a few sentences."""
    rows = _counted(frame)
    found, out, neither = counts(frame).values()
    meta = int((_sources(rows) == "sec_meta_review").sum())
    small = int(_too_small(_open(rows)).sum())
    contrary = ", ".join(rows[rows["stands"] & ~rows["word"].isin(_FOUND)]["claim"].unique())
    return (
        f"Of {found + out + neither} tests ({meta} of a meta-reviewer's sentences) {neither} "
        f"could not tell ({small} too small), {found} found a part of what {_decided(frame)} "
        f"claims, and {out}{f' ({contrary})' * bool(contrary)} did not. "
        f"{confirm.sentence(confirm.confirmed())}".rstrip()
    )


def _open(rows: pd.DataFrame) -> pd.DataFrame:
    """Those that could not tell."""
    words = rows[["word", "stands"]].itertuples(index=False)
    return rows[[outcome(*row) == "open" for row in words]]


def _too_small(rows: pd.DataFrame) -> pd.Series:
    """Whether what four of five such studies find is larger than what is claimed."""
    return rows["least"] > rows["printed"].fillna(rows["margin"])


def _sources(rows: pd.DataFrame) -> pd.Series:
    return rows["claim"].map({claim: about["source"] for claim, about in table().items()})


def _decided(frame: pd.DataFrame) -> str:
    """Whose claims have a word that stands."""
    rows = _counted(frame)
    stands = rows[rows["stands"] & rows["word"].isin(DECIDED)]
    return " and ".join(_SOURCES[source] for source in _sources(stands).unique()) or "anyone"


def _silent(rows: pd.DataFrame) -> str:
    """What silences those that could not tell, each by the first reason that it has."""
    mine = _open(rows)
    if not len(mine):
        return ""
    small, word = _too_small(mine), mine["word"]
    rules = {
        "a search that failed": word == FAILED,
        "an unequal search or borrowed recipes": mine.apply(reason, axis=1) != "",
        "scores that are exactly equal": word == IDLE,
        "fewer than five effective repetitions": mine["effective"] < FEW,
        "a word that falls in the correction": word.isin(DECIDED),
        "a detectable difference larger than the claim": small,
    }
    left, said = pd.Series(True, mine.index), []
    for why, there in rules.items():
        said.append(f"{(left & there).sum()} {why}")
        left &= ~there
    return (
        f" In {small.sum()} of those that could not tell, the difference found in four of five "
        "studies is larger than the printed size, or else *m*: too small. By the first reason "
        f"that each has, in this order (all rules written after the data), they are silenced by: "
        f"{', '.join(said)}; {left.sum()} are open."
    )


def _at_length(frame: pd.DataFrame) -> str:
    """Whose claims were tested, which were decided, and what else was looked at."""
    rows, words, of = _counted(frame), frame["word"], _sources(_counted(frame))
    stands = rows["stands"] & rows["word"].isin(DECIDED)
    exact = frame["claim"].map(lambda name: table()[name]["rule"] == "exact").astype(bool)
    where = "; ".join(dict.fromkeys(map(placed, rows[stands]["condition"])))
    left = [name for source, name in _METHODS.items() if source in {*of} - {*of[stands]}]
    return (
        f"The tests are of {rows['claim'].nunique()} claims.{_silent(rows)} Besides, "
        f"{(exact & (words == 'passed')).sum()} identities "
        f"hold, {(~exact & (words == 'passed')).sum()} check of code passed, and in the papers' "
        f"own tables "
        f"{(words == 'holds there').sum()} claims do and {(words == 'fails there').sum()} do not."
        + f" What was decided is of {_decided(frame)}, {where}; by the measure above "
        f"{_too_small(rows[stands]).sum()} of these {stands.sum()} were too small, too, and what "
        "such studies find is too large in the mean."
        * bool(where)
        + f" Of {' and '.join(left)} these rows decide nothing." * bool(left)
    )


def tally(frame: pd.DataFrame) -> str:
    """The ledger in one sentence, and which words these are.

    >>> from studies import claims
    >>> tally(claims.ledger(claims.ROOT / "data"))  # where there are no figures
    'No row of evidence yet.'
    """
    every = frame[frame["word"].isin(WORDS)]
    found = _counted(frame)
    if not len(found):
        return "No row of evidence yet."
    stands = found[found["stands"]]["word"].value_counts()
    decided = found["word"].isin(DECIDED)
    parts = [f"{stands[word]} {word}" for word in DECIDED if word in stands]
    others = found[~decided]["word"].value_counts()
    rest = [f"{others[word]} {word}" for word in WORDS if word in others]
    falls = int((decided & ~found["stands"]).sum())
    return (
        f"{in_short(frame)} {_at_length(frame)} After Holm's correction these words stand: "
        f"{', '.join(parts) or 'none'}. {falls} more have one that falls; "
        f"{', '.join(rest) or 'none is open'}. {(every['condition'] == AGAIN).sum()} rows repeat "
        f"others after longer searches; {every['claim'].map(is_question).sum()} are questions, "
        "which nobody claimed. "
        "Every rule was written with its data known."
    )


def markdown(frame: pd.DataFrame) -> str:
    """The tally, and a section for each claim: its rows, and, folded, its sentence and history."""
    parts = [tally(frame)]
    for name, about in table().items():
        mine = frame[frame["claim"] == name]
        parts.append(f"## {name} · {about['claim']}")
        smallest = f"{about['smallest']} {about['unit']}"
        if about["unit"] in _IN_POINTS:
            size = 100 * float(about["smallest"])
            smallest = f"{size:g} point{'s' * (size != 1)} of {about['unit']}"
        sizes = [f"{100 * size:.1f} ({data})" for data, size in printed(name).items()]
        source = _SOURCES.get(about["source"], about["source"])
        said = "A question, asked by" if is_question(name) else "Said by"
        who = "repository" if about["source"] == "sec_meta_review" else "table"
        parts.append(
            f"{said} {source}. Measured: {about['measure']}; the smallest "
            f"effect is {smallest}."
            + f" The authors' {who} prints{printed_ranks(name)}, as a mean over losses: "
            f"{', '.join(sizes)} points{_OTHER.get(who, '')}."
            * bool(sizes)
            + _elsewhere(about["recipes"])
        )
        if len(mine):
            head = [column or "word" for column in COLUMNS[1:] if column != "what else"]
            lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
            notes = list[str]()
            for _, where, *cells, note, figure in rows(mine):
                if note:  # below the table
                    notes.append(f"- ({(mark := string.ascii_lowercase[len(notes)])}) {note}")
                    where += f" ({mark})"
                link = f'<a href="../figures/{figure}.png">{figure}</a>'
                lines.append(f"| {' | '.join([where, *cells, link])} |")
            parts += ["\n".join(lines), *(["\n".join(notes)] if notes else [])]
        else:
            parts.append("Not tested.")
        parts.append("<details><summary>The sentence, and the history of its rule</summary>")
        parts.append(f"> {about['sentence']}\n\n{_history(about)}\n\n</details>")
    return "\n\n".join(parts)


def _elsewhere(told: str) -> str:
    """The condition of the paper itself, as recipes have it: "PATTERN", or "PATTERN loss"."""
    pattern, _, loss = told.partition(" ")
    made = [recipes.load(name, loss or None) for name in fnmatch.filter(recipes.names(), pattern)]
    if not made:
        return ""
    networks = ", ".join(dict.fromkeys(str(each.model) for each in made))
    counts = [[each.dim for each in made], [*map(_images, made)], [each.steps for each in made]]
    dims, images, steps = (
        " to ".join(f"{end:,}" for end in dict.fromkeys((min(x), max(x)))) for x in counts
    )
    return (
        f" The paper's own condition, as our recipes have it: {networks}; {dims} numbers, batches "
        f"of {images} images, {steps} steps."
    )


def _images(made: Experiment) -> int:
    """How many a batch has."""
    args = made.sampler_args
    if "size" in args:
        return int(args["size"])
    per_class = args.get("per_class", args.get("support", 0) + args.get("query", 0))
    return int(args.get("classes", args.get("ways"))) * int(per_class)


def _history(about: dict[str, str]) -> str:
    said = [f"Before: {about['before']}" * bool(about["before"]), about["why"]]
    return " ".join([*filter(None, said), f"Known when the rule was written: {about['known']}"])


def write(page: Path, frame: pd.DataFrame) -> None:
    """Write what a page has marks for: the ledger (``<!-- claims -->``), its one sentence
    (``<!-- in-short -->``), the sealed study (``<!-- confirmed -->``), all its losses
    (``<!-- every-loss -->``), the losses that lead everywhere (``<!-- leading -->``) or all groups
    of losses (``<!-- which-loss -->``).

    Raises ValueError for a page that has none of them.
    """
    text = page.read_text(encoding="utf-8")
    makes = {
        "claims": lambda: markdown(frame),
        "in-short": lambda: in_short(frame),
        "confirmed": lambda: confirm.markdown(confirm.confirmed()),
        "every-loss": confirm.every_loss,
        "leading": lambda: choice.leading(conditions(kept())),
        "which-loss": lambda: choice.markdown(conditions(kept())),
    }
    marks = [mark for mark in makes if f"<!-- {mark} -->" in text]
    for mark in marks or ["claims"]:
        write_between(page, mark, makes[mark]())
