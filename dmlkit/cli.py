"""The command line: ``dmlkit reproduce | train | search | tune | study | claims | …``."""

import json
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD

from dmlkit import terminal
from dmlkit.files import write_whole
from dmlkit.settings import literals, named
from dmlkit.terminal import Commands, print_table

if TYPE_CHECKING:
    from dmlkit.training import Experiment, Run

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    help="Learn, teach and honestly test deep metric learning.",
)
data = typer.Typer(no_args_is_help=True, help="Check data sets, and put them in place.")
app.add_typer(data, name="data")
Root = Annotated[
    Path | None, typer.Option(help="Folder of the data sets; else $DMLKIT_DATA, else data/.")
]
OfRun = Annotated[
    Path | None, typer.Option(help="Folder of the data sets; else where the Run was trained on it.")
]
RunName = Annotated[str, typer.Argument(help="Its folder, or its name as `train` says it.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Scheduler = Annotated[
    str | None,
    typer.Option(
        envvar="DMLKIT_SCHEDULER",
        help="Address of a Dask scheduler: sweeps train on its workers, which share data/.",
    ),
]


def _set(what: str) -> Any:
    return typer.Option("--set", help=f"NAME=JSON, repeatable: {what}")


Settings = Annotated[
    list[str] | None, _set("a field of Experiment, or an entry of one: data_args.crop.")
]
Parameters = Annotated[list[str] | None, _set("a parameter of the notebooks.")]


def _use_root(root: Path | None) -> None:
    if root is not None:
        os.environ["DMLKIT_DATA"] = str(root.resolve())


def _find_run(name: str, root: Path | None) -> "Run":
    """A Run; its pictures are in the root that is given, else where it was trained on them."""
    from dmlkit.extras import search

    done = search.find_run(name)
    _use_root(root or search.kept_place(done))
    return done


def _use_scheduler(address: str | None) -> None:
    """Let every sweep from here on, those of notebooks too, train on a cluster that can."""
    if address:
        from dmlkit import study

        os.environ["DMLKIT_SCHEDULER"] = address
        study.default_executor()


@app.command()
def train(
    recipe: Annotated[str | None, typer.Option(help="Name in recipes/, or a .toml file.")] = None,
    loss: Annotated[
        str | None,
        typer.Option(
            help="Its short name; for a wrong one all are told.", show_default="triplet_semihard"
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="A data set, or folder: your own pictures.", show_default="glyphs"),
    ] = None,
    root: Root = None,
    steps: Annotated[int | None, typer.Option(min=1, show_default="280")] = None,
    seed: Annotated[int | None, typer.Option(min=0, show_default="0")] = None,
    device: Device = "auto",
    settings: Settings = None,
) -> None:
    """Train one Experiment (or load its Run), and score it on unseen classes beside baselines."""
    if recipe and not recipe.endswith(".toml"):
        _need_project("recipes")
    _use_root(root)
    _refuse_path(data)
    from dmlkit import training
    from dmlkit.extras import recipes

    given = {"data": data, "steps": steps, "seed": seed}
    changes = {name: value for name, value in given.items() if value is not None}
    asked = literals(settings)
    experiment = recipes.load(recipe, loss, changes | asked)
    if "classes" not in recipes.nested(asked).get("sampler_args", {}):
        experiment, fewer = recipes.fitted(experiment)
        terminal.console.print(fewer, end="\n" if fewer else "", soft_wrap=True)
    columns = training.baselines(experiment, device)
    found, where = _trained(experiment, device)
    columns |= found
    title = f"{experiment.data}, {experiment.split} classes, never seen in training (%)"
    rows = (
        (name, *(f"{100 * scores[name]:.1f}" for scores in columns.values()))
        for name in next(iter(found.values()))
    )
    print_table(title, ["score", *columns], rows, "right")
    terminal.console.print(where, soft_wrap=True)


def _refuse_path(data: str | None) -> None:
    """A data set has a name; a folder of pictures is easily given in its place."""
    from dmlkit.data import LOADERS

    if data and data not in LOADERS and Path(data).is_dir():
        raise ValueError(
            f"--data {data} is a folder, and no name of a data set: for the pictures in it, say "
            f"--data folder --root {data}"
        )


def _trained(experiment: "Experiment", device: str) -> tuple[dict[str, dict[str, float]], str]:
    """Scores by the name of what was trained, and a line that says where it is kept."""
    from dmlkit import training
    from dmlkit.extras import dreml, search

    loss, steps = experiment.loss, experiment.steps
    if loss == "dreml":
        ensemble = dreml.dreml(experiment, device=device, **experiment.loss_args)
        runs = ensemble.runs
        search.keep_place(*runs)
        one, all_of_them = f"one member, {steps} steps", f"dreml, {len(runs)} such members"
        found = {one: runs[0].scores, all_of_them: ensemble.scores}
        return found, f"{len(runs)} Runs, kept in {runs[0].path.parent}"
    done = training.run(experiment, device=device)
    search.keep_place(done)
    how = "loaded from" if done.loaded else f"trained in {done.seconds:.0f} s, kept in"
    line = f"Run {done.path.name}, {how} {done.path.parent}"
    return {f"{loss}, {steps} steps": done.scores}, line


@app.command()
def search(
    image: Annotated[Path, typer.Argument(help="A picture file.")],
    run: Annotated[str, typer.Option(help="A Run: its folder, or its name as `train` says it.")],
    pictures: Annotated[Path | None, typer.Option(help="To search; else the Run's data.")] = None,
    split: Annotated[str | None, typer.Option(help="Of that data set; else the Run's.")] = None,
    root: OfRun = None,
    count: Annotated[int, typer.Option(min=1, help="How many to find.")] = 5,
    index_type: Annotated[str, typer.Option(help="flat, ivfpq or hnsw.")] = "flat",
    index: Annotated[Path | None, typer.Option(help="Its file; else one in the cache.")] = None,
    panel: Annotated[Path | None, typer.Option(help="A PNG to write: what was found.")] = None,
    device: Device = "auto",
) -> None:
    """Find the pictures most like one, by the model of a Run; they are indexed the first time."""
    from dmlkit.extras import search

    done = _find_run(run, root)
    gallery = search.gallery(done, pictures, split)
    path = index or search.place_of_index(done, pictures, split)
    made, built = search.index(done, gallery, path, index_type, device)
    found = search.nearest(done, gallery, made, image, count, device)
    if panel:
        figure = search.panel(done, gallery, image, found)
        write_whole({panel: partial(figure.savefig, format="png", bbox_inches="tight")})
    measure = str(made.metric)
    rows = ((f"{row[measure]:.3f}", row["class"], row["picture"]) for _, row in found.iterrows())
    print_table(f"most like {image.name}", (measure, "class", "picture"), rows)
    recall = made.facts.get("recall")
    share = "" if recall is None else f"; it finds {recall:.1%} of the exact 10 nearest"
    how = "built, kept in" if built else "loaded from"
    line = f"{index_type} index of {len(made)} pictures, {how} {path}{share}"
    terminal.console.print(line, soft_wrap=True)


@app.command()
def diagnose(
    run: RunName,
    root: OfRun = None,
    device: Device = "auto",
) -> None:
    """Say in words what is wrong with a Run, by which numbers, and what to do about it."""
    from dmlkit.extras import diagnosis

    done = _find_run(run, root)
    found = diagnosis.diagnose(done, device)
    for finding in found:
        terminal.console.print(f"{finding.name}: {finding.seen}.", highlight=False)
        terminal.console.print(
            f"  {finding.advice} See notebooks/{finding.notebook}.ipynb", highlight=False
        )
    recall = done.scores["recall_at_1"]
    if not found:
        terminal.console.print(f"nothing wrong was found: Recall@1 {recall:.1%} on unseen classes")


@app.command()
def threshold(
    run: RunName,
    fmr: Annotated[
        list[float] | None,
        typer.Option(help="False match rate, repeatable.", show_default="0.001"),
    ] = None,
    root: OfRun = None,
    device: Device = "auto",
) -> None:
    """Find what distance means "same": chosen on validation classes, measured on test classes."""
    from dmlkit.extras import thresholds

    done = _find_run(run, root)
    found, split, rates, caption = thresholds.choose(done, fmr or [1e-3], device)
    head = ("FMR asked", "on", f"{done.experiment.metric} threshold", *thresholds.RATES.values())
    rows = thresholds.rows(rates)
    print_table(f"Run {done.path.name}: same class or not", head, rows, "right", caption=caption)
    line = f"EER {found.eer:.2%}, of {found.genuine} genuine and {found.impostors} impostor pairs"
    terminal.console.print(f"{line} of {split}; intervals: 95 %, over classes", soft_wrap=True)


@app.command()
def tune(
    names: Annotated[list[str] | None, typer.Argument(help="Losses; none means all.")] = None,
    trials: Annotated[int, typer.Option(min=1, help="Of every loss.")] = 24,
    steps: Annotated[int, typer.Option(min=1, help="Of every trial.")] = 280,
    storage: Annotated[str, typer.Option(help="A file, or a database's URL.")] = "data/tuning.log",
    output: Annotated[Path, typer.Option(help="Of trials.csv, recipes.json.")] = Path(
        "data/tuning"
    ),
    device: Device = "auto",
    scheduler: Scheduler = None,
    settings: Settings = None,
) -> None:
    """Seek good settings of every loss on validation classes, with the same budget for each."""
    from dmlkit.extras import recipes, tuning

    _use_scheduler(scheduler)
    if "://" not in storage:
        storage = str(Path(storage).resolve())  # workers may have another working folder
    base = recipes.load(None, None, {"steps": steps} | literals(settings))
    found = tuning.tune(storage, names or (), trials, base, device=device)
    output.mkdir(parents=True, exist_ok=True)
    best = tuning.recipes(found)
    texts = {
        "trials.csv": found.to_csv(index=False),
        "recipes.json": json.dumps(best, indent=1) + "\n",
    }
    write_whole({output / n: partial(Path.write_text, data=text) for n, text in texts.items()})
    rows = (
        (str(name), f"{100 * r.max():.1f}", f"{100 * r.iloc[0]:.1f}", json.dumps(best[str(name)]))
        for name, r in found.groupby("loss", sort=False)["recall_at_1"]
    )
    title = f"best of {trials} trials on validation classes, {steps} steps each"
    print_table(title, ("loss", "R@1 (%)", "default (%)", "settings"), rows)


@app.command()
def claims(
    parts: Annotated[bool, typer.Option(help="Every part with its numbers.")] = False,
    write: Annotated[Path | None, typer.Option(help="Between <!-- claims --> marks.")] = None,
) -> None:
    """Print the ledger: what our own runs say of every claim, from the numbers of figures/."""
    _need_project("data/claims.csv", "figures")
    from dmlkit import claims, ledger

    found = claims.verdicts()
    if write:
        ledger.write_table(write, found)
        ledger.write_tally(write, found)
        return
    title = "the claims of the papers, and what our own runs say"
    look: dict[str, Any] = {"box": SIMPLE_HEAD, "show_edge": False, "padding": 0}
    if parts:
        print_table(title, ledger.COLUMNS, ledger.rows(found), **look)
        return
    texts, summary = claims.table(), ledger.summary(found)
    columns = ["verdict", "holm", "others", "figures"]
    rows = [(str(c), texts[str(c)]["claim"], *row[columns]) for c, row in summary.iterrows()]
    print_table(title, ("", "claim", "verdict", "Holm", "other parts", "figures"), rows, **look)
    terminal.console.print(ledger.tally(found))


def _need_project(*parts: str) -> None:
    """An installed package has neither the course's notebooks nor its figures."""
    from dmlkit import ROOT

    if missing := [part for part in parts if not (ROOT / part).exists()]:
        raise FileNotFoundError(
            f"{missing[0]} is not in {ROOT}: run this in the project's folder, which has the course"
        )


@app.command()
def study(
    name: Annotated[str, typer.Argument(help="Of its rules: scratch, transfer, wide or claims.")],
    arms: Annotated[list[str] | None, typer.Option(help="A name, repeatable; else all.")] = None,
    only: Annotated[str | None, typer.Option(help="search or repetitions.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Stop after about so many.")] = None,
    status: Annotated[bool, typer.Option(help="Say what is done, and train nothing.")] = False,
    sample: Annotated[int, typer.Option(help="Rows of its evidence to train anew.")] = 0,
    key: Annotated[str, typer.Option(help="What draws them: a commit's hash.")] = "",
    write: Annotated[Path | None, typer.Option(help="Between <!-- which-loss --> marks.")] = None,
    device: Device = "auto",
    scheduler: Scheduler = None,
) -> None:
    """Tune and compare every loss by written rules, or go on where that was broken off."""
    _need_project("data/studies")
    from dmlkit.extras import reality

    if write:
        reality.write_choice(write, name)
        return
    _use_scheduler(scheduler)
    for line in reality.command(name, arms or (), only, minutes, status, sample, key, device):
        terminal.console.print(line, highlight=False, soft_wrap=True)


@app.command()
def judge(
    loss: Annotated[str, typer.Argument(help="mylosses.py:MyLoss, or package.module:MyLoss.")],
    study: Annotated[
        list[str] | None, typer.Option(help="scratch or transfer, repeatable; else both.")
    ] = None,
    folder: Annotated[Path, typer.Option(help="Of the page, judge_MyLoss.md.")] = Path(),
    device: Device = "auto",
    scheduler: Scheduler = None,
    settings: Annotated[list[str] | None, _set("an argument of the loss.")] = None,
) -> None:
    """Put a loss of your own through the study: one page that says where it stands."""
    _need_project("data/studies")
    from dmlkit.extras.judge import judge

    _use_scheduler(scheduler)
    args = literals(settings)
    found = judge(loss, study or None, loss_args=args, folder=folder, device=device)
    terminal.console.print(found.page(), highlight=False, soft_wrap=True)


@data.command()
def check(
    name: Annotated[str, typer.Argument(help="glyphs, omniglot, cub, cars, sop, inshop, folder.")],
    root: Root = None,
    settings: Annotated[list[str] | None, _set("an argument of the data set.")] = None,
) -> None:
    """Count a data set's splits, and name what is missing, too few or unreadable in it."""
    from dmlkit.data import faults

    found, missing = faults.splits(name, root, **literals(settings))
    rows = ((split, *map(str, counts.values())) for split, (counts, _) in found.items())
    caption = named(missing).replace("--set data_args.", "--set ") if missing else None
    print_table(name, ("split", "images", "classes", "groups"), rows, "right", caption=caption)
    wrong = [line for _, lines in found.values() for line in lines]
    for line in wrong:
        terminal.console.print(line, highlight=False, soft_wrap=True)
    if wrong:
        count = "1 fault" if len(wrong) == 1 else f"{len(wrong)} faults"
        raise ValueError(f"{name} is not complete: {count}")


@data.command()
def get(
    name: Annotated[str, typer.Argument(help="omniglot, cub, cars, sop or inshop.")],
    root: Root = None,
) -> None:
    """Fetch a data set, or say how to come by it; verify it, unpack it, and check it."""
    from dmlkit import ROOT
    from dmlkit.data import benchmarks

    folder = root or Path(os.environ.get("DMLKIT_DATA") or ROOT / "data")
    benchmarks.get(name, folder)
    check(name, folder)


@app.command()
def reproduce(
    notebooks: Annotated[list[str] | None, typer.Argument(help="e.g. 00; none means all.")] = None,
    profile: Annotated[str, typer.Option(help="smoke, ci or full.")] = "ci",
    workers: Annotated[int | None, typer.Option(min=1, help="Notebooks at a time.")] = None,
    check: Annotated[bool, typer.Option(help="Compare with the committed numbers.")] = False,
    timeout: Annotated[float, typer.Option(help="Minutes that one notebook may take.")] = 120,
    build: Annotated[Path | None, typer.Option(help="Folder of what runs leave.")] = None,
    scheduler: Scheduler = None,
    settings: Parameters = None,
) -> None:
    """Run the course's notebooks and make their figures."""
    _need_project("notebooks")
    from dmlkit import reproduce

    _use_scheduler(scheduler)
    if not reproduce.reproduce(
        notebooks or (), profile=profile, workers=workers, check=check,
        timeout_minutes=timeout, parameters=literals(settings), build=build,
    ):  # fmt: skip
        raise typer.Exit(1)


@app.command()
def student(
    folder: Annotated[Path, typer.Argument(help="To be written; can be taken anywhere.")] = Path(
        "student"
    ),
) -> None:
    """Copy the course without its solutions: what is between the markers becomes a stub."""
    from dmlkit.extras import teaching

    for copy in teaching.copies(folder):
        terminal.console.print(str(copy))


@app.command()
def grade(
    places: Annotated[list[Path], typer.Argument(help="A folder for each student, or notebooks.")],
    only: Annotated[list[str] | None, typer.Option(help="Notebooks: 00, repeatable.")] = None,
    minutes: Annotated[float, typer.Option(help="What one cell may take.")] = 3,
    workers: Annotated[int, typer.Option(min=1, help="Notebooks at a time.")] = 1,
    csv: Annotated[Path | None, typer.Option(help="A file to write: a row per exercise.")] = None,
    settings: Parameters = None,
) -> None:
    """Run students' notebooks, and print who passed which exercise, and what failed."""
    _need_project("notebooks")
    from dmlkit.extras import grading

    found = grading.grade(places, only or (), minutes, workers, literals(settings))
    if csv:
        write_whole({csv: partial(found.to_csv, index=False)})
    print_table("who passed what", *grading.in_short(found))
    for line in grading.told(found):
        terminal.console.print(line, highlight=False, soft_wrap=True)


@app.command()
def doctor() -> None:
    """Tell what this machine offers dmlkit, what is missing, and how to mend that."""
    from dmlkit.extras import doctor

    print_table("dmlkit doctor", ["", ""], doctor.facts().items(), show_header=False)
    for line in doctor.hints():
        terminal.console.print(line, highlight=False, soft_wrap=True)
    if wrong := list(doctor.complaints()):
        raise OSError("; ".join(wrong))


if __name__ == "__main__":
    app()
