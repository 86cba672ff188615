"""The standard of a lesson, as far as a machine can check it: one question, picture and hour."""

import re
from collections.abc import Iterator

from nbformat import NotebookNode

import dmlkit
from course import minutes, quiz

#: Lessons that are in the form of docs/lesson.md: claim, guess, try, verdict.
LIVED = (
    "00_start_here", "01_measuring_retrieval", "02_pairs", "03_mining", "04_distances",
    "05_batches", "06_prototypes", "07_clustering", "08_proxies", "09_margins", "10_memory",
    "11_ensembles", "12_curvature", "13_norms_and_gradients", "14_spherical_constraint",
    "15_norms_and_groups", "16_expansion_geometry", "17_expansion_training",
    "22_embedding_maps", "23_failures_and_hubs", "24_photographs", "25_what_came_after",
    "26_search_and_deploy", "27_contrast_without_labels", "28_pictures_and_words",
    "30_after_the_first_ten",
)  # fmt: skip
#: Most words of the one bold sentence that answers the title, and of the whole verdict.
BOLD, VERDICT = 25, 250
#: Of these, without "More".
CORE_WORDS, CORE_LINES, MINUTES = 1600, 90, 48
#: The most words and code cells before "Going deeper", words of it, and of the box of evidence.
WORDS, CELLS, DEEPER, BOX = 2000, 30, 800, 60
EVIDENCE = 3000  # words of a notebook in which claims are settled
#: Words before the first picture.
FIRST_SCREEN = 400
#: Names of our own for what the field has names for, and verdicts, which evidence notebooks give.
DIALECT = (
    "arm", "arms", "lot", "room", "kept Runs", "as many visits", "told apart", "REPRODUCED",
    "CONTRADICTED", "UNDECIDED", "claims.settle", "drawn by the hash", "rectifier",
)  # fmt: skip
_HEADER = re.compile(r"^\*Read \d+ minutes, do \d+; the machine works [\d.]+\. Needs: .+\*$", re.M)
_PREDICT = re.compile(r"\*\*Predict\.\*\*.*?<details><summary>Answer</summary>", re.S)


def problems(notebook: NotebookNode) -> Iterator[str]:
    """What a lesson lacks."""
    prose = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    whole = "\n\n".join(prose)
    core, deeper = _split(notebook)
    title = prose[0].splitlines()[0]
    if not title.endswith("?"):
        yield f"the title {title!r} asks no question"
    if not _HEADER.search(prose[0]):
        yield "no line '*Read … minutes, do …; the machine works …. Needs: …*'"
    if not re.search(r"^## Recap\n\n\*\*In one sentence\.\*\* ", whole, re.M):
        yield "the recap does not begin with '**In one sentence.**': earlier it spoils the guesses"
    judges = any("from studies import" in cell.source for cell in notebook.cells)
    if (count := _words(core)) > (most := EVIDENCE if judges else WORDS):
        yield f"{count} words before 'Going deeper', above {most}"
    if (count := sum(cell.cell_type == "code" for cell in core)) > CELLS:
        yield f"{count} code cells before 'Going deeper', above {CELLS}"
    if (count := _words(deeper)) > DEEPER:
        yield f"{count} words in 'Going deeper', above {DEEPER}"
    if (count := _words(_before_the_first_picture(notebook))) > FIRST_SCREEN:
        yield f"{count} words before the first picture, above {FIRST_SCREEN}"
    if not re.search(r"^> \*\*The idea\.\*\*", whole, re.M):
        yield "no box '> **The idea.**'"
    asked = sum(bool(_PREDICT.search(t) or quiz.MARK.match(t)) for t in prose)
    if asked < 3:
        yield f"{asked} predictions with their answer folded below, expected 3"
    verdict = re.search(r"^## .*Verdict$(.*?)(?=^## )", whole, re.M | re.S)
    if verdict and "**When would I use this?**" not in verdict[1]:
        yield "the verdict does not say '**When would I use this?**'"
    if not verdict and not (
        box := re.search(r"^> \*\*What the evidence says\.\*\*(.+?)(?:\n\n|\Z)", whole, re.M | re.S)
    ):
        yield "neither '## Verdict' nor a box '> **What the evidence says.**'"
    elif not verdict and len(re.sub(r"<!--.*?-->", "", box[1], flags=re.S).split()) > BOX:
        yield f"the box of evidence has more than {BOX} words"
    for heading in ("Exercises", "Recap", "Read on"):
        if not re.search(rf"^## {heading}", whole, re.M):
            yield f"nothing is headed '## {heading}'"
    if whole.count("<details>") != whole.count("</details>"):
        yield "a <details> is not closed"
    for cell in notebook.cells:
        if judges and cell.cell_type == "code":  # tables of studies have a column "arm"
            continue
        text = re.sub(r"<!--.*?-->|`[^`]*`", "", cell.source, flags=re.S)
        for word in DIALECT:
            if re.search(rf"(?<![\w.]){re.escape(word)}(?!\w)", text):
                yield f"{word!r} is not a word of the field: {cell.source.splitlines()[0]!r}"


def lived(notebook: NotebookNode, name: str) -> Iterator[str]:
    """What a lesson lacks of the form of docs/lesson.md."""
    sources = [cell.source for cell in notebook.cells]
    prose = "\n\n".join(c.source for c in notebook.cells if c.cell_type == "markdown")
    core = minutes.core(notebook)
    if (count := minutes.words(core)) > CORE_WORDS:
        yield f"{count} words in the core, above {CORE_WORDS}"
    if (count := minutes.lines(core)) > CORE_LINES:
        yield f"{count} visible lines of code in the core, above {CORE_LINES}"
    if sum(study := minutes.study(notebook)) > MINUTES:
        yield f"{sum(study)} minutes to read and to do, above {MINUTES}"
    if f"*Read {study[0]} minutes, do {study[1]};" not in sources[0]:
        yield "the minutes in the first cell are not those counted: python -m course.book"
    for said in (
        "**The claim.**",
        "> **The idea.**",
        "**When would I use this?**",
        "## More",
    ):
        if said not in prose:
            yield f"nothing says {said!r}"
    yield from _answered(prose)
    if "<!-- holds " not in prose and not any(item.holds for item in quiz.items(name).values()):
        yield "no answer is bound to a figure: '<!-- holds …' or holds = […] of a prediction"
    if "**The claim.**" not in sources[0]:
        yield "the claim is not in the first cell"
    if not re.search(r"^\*\*\d\. .+ \(10 minutes\)\.?\*\*", prose, re.M):
        yield "no exercise '**1. … (10 minutes).**'"
    asked = [found[1] for text in sources if (found := quiz.MARK.match(text))]
    known = quiz.items(name)
    if len(asked) < 3 or sorted(asked) != sorted(known):
        yield f"the predictions {asked} are not three or more of course/quiz/{name}.toml"
    if any(known[each].markdown() not in sources for each in asked if each in known):
        yield "a prediction is not as its source has it: python -m course.book"
    if not any(f"{quiz.GUESSES} = {{" in text for text in sources):
        yield f"no cell '{quiz.GUESSES} = {{…}}' takes a student's letters"
    draws = dmlkit.ROOT / "dmlkit" / "lessons" / f"{name.partition('_')[2]}.py"
    code = [*sources, draws.read_text("utf-8") if draws.exists() else ""]
    for call in (f'figures.verdict("{name}"', "figures.explore("):
        if not any(call in text for text in code):
            yield f"nothing calls {call}"


def _answered(prose: str) -> Iterator[str]:
    """What the verdict lacks: one bold sentence, a table of its numbers, and brevity."""
    plain = re.sub(r"<!--.*?-->", "", prose, flags=re.S)
    found = re.search(r"^## [^\n]*Verdict$(.*?)(?=^## )", plain, re.M | re.S)
    text = found[1] if found else ""
    answer = re.search(r"^\*\*([^*]+)\*\*\s*$", text, re.M)
    if not answer:
        yield "no line of the verdict is one bold sentence, the answer to the title"
    elif (count := len(answer[1].split())) > BOLD:
        yield f"the bold answer has {count} words, above {BOLD}"
    if "\n|---" not in text:
        yield "the verdict has no table of its numbers"
    if (count := len(text.split())) > VERDICT:
        yield f"{count} words in the verdict, above {VERDICT}"


def _split(notebook: NotebookNode) -> tuple[list[NotebookNode], list[NotebookNode]]:
    """The cells of the core, to which what follows "Going deeper" belongs, and those of that."""
    core, deeper, inside = [], [], False
    for cell in notebook.cells:
        for heading in re.findall(r"^## (.+)", cell.source, re.M) * (cell.cell_type == "markdown"):
            inside = heading.startswith(("Going deeper", "More"))
        (deeper if inside else core).append(cell)
    return core, deeper


def _before_the_first_picture(notebook: NotebookNode) -> Iterator[NotebookNode]:
    for cell in notebook.cells:
        if cell.cell_type == "code" and "figures.save(" in cell.source:
            return
        yield cell


def _words(cells) -> int:
    """Words of the prose; comments with the places of numbers do not count."""
    texts = (cell.source for cell in cells if cell.cell_type == "markdown")
    return sum(len(re.sub(r"<!--.*?-->", "", text, flags=re.S).split()) for text in texts)
