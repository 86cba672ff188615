"""The command line: ``dmlkit reproduce | train | search | tune | claims | data | …``."""

import json
import os
import re
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dmlkit.files import write_whole

if TYPE_CHECKING:
    from dmlkit.training import Experiment

_SOLUTION = re.compile(
    r"^([ \t]*)### BEGIN SOLUTION$.*?^[ \t]*### END SOLUTION$", re.MULTILINE | re.DOTALL
)

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    help="Learn, teach and honestly test deep metric learning.",
)
console = Console(quiet=int(os.environ.get("RANK", 0)) > 0)  # of torchrun's processes one speaks

Root = Annotated[
    Path | None, typer.Option(help="Folder of the data sets; else $DMLKIT_DATA, else data/.")
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Scheduler = Annotated[
    str | None,
    typer.Option(
        envvar="DMLKIT_SCHEDULER",
        help="Address of a Dask scheduler: sweeps train on its workers, which share data/.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="Any other field of Experiment as NAME=JSON; repeatable."),
]


def _fail(error: Exception) -> typer.Exit:
    """One readable line instead of a traceback, and a non-zero exit status."""
    line = f"[bold red]error:[/] {escape(str(error))}"
    Console(stderr=True).print(line, highlight=False, soft_wrap=True)
    return typer.Exit(1)


def _use_root(root: Path | None) -> None:
    if root is not None:
        os.environ["DMLKIT_DATA"] = str(root.resolve())


def _use_scheduler(address: str | None) -> None:
    """Let every sweep from here on, those of notebooks too, train on a cluster that is fit."""
    if address:
        from dmlkit import study

        os.environ["DMLKIT_SCHEDULER"] = address
        try:
            study.default_executor()
        except (ImportError, OSError, RuntimeError) as error:
            raise _fail(error) from error


def _literals(settings: list[str]) -> dict[str, Any]:
    """``lr=0.001`` -> {"lr": 0.001}: values are JSON; what is no JSON is a string.

    >>> _literals(["steps=10", "metric=euclidean"])
    {'steps': 10, 'metric': 'euclidean'}
    """
    found: dict[str, Any] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise ValueError(f"a setting is NAME=VALUE, but this is {setting!r}")
        try:
            found[name] = json.loads(value)
        except json.JSONDecodeError:
            found[name] = value
    return found


@app.command()
def train(
    recipe: Annotated[
        str | None, typer.Option(help="A published setting in recipes/, or a path to a .toml file.")
    ] = None,
    loss: Annotated[
        str | None,
        typer.Option(
            help="Short name; see dmlkit.losses.names().", show_default="triplet_semihard"
        ),
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="glyphs, omniglot, …", show_default="glyphs")
    ] = None,
    root: Root = None,
    steps: Annotated[int | None, typer.Option(min=1, show_default="280")] = None,
    seed: Annotated[int | None, typer.Option(show_default="0")] = None,
    device: Device = "auto",
    settings: Settings = None,
) -> None:
    """Train one Experiment (or load its Run), and score it on unseen classes beside baselines."""
    _use_root(root)
    from dmlkit import training
    from dmlkit.extras import recipes

    given = {"data": data, "steps": steps, "seed": seed}
    try:
        changes = {name: value for name, value in given.items() if value is not None}
        experiment = recipes.load(recipe, loss, changes | _literals(settings or []))
        columns = training.baselines(experiment, device)
        found, where = _trained(experiment, device)
    except (ValueError, TypeError, OSError, ArithmeticError, RuntimeError, ImportError) as error:
        raise _fail(error) from error
    columns |= found
    title = f"{experiment.data}, {experiment.split} classes, never seen in training (%)"
    table = Table(title=title)
    table.add_column("score")
    for label in columns:
        table.add_column(label, justify="right")
    for name in next(iter(found.values())):
        table.add_row(name, *(f"{100 * scores[name]:.1f}" for scores in columns.values()))
    console.print(table)
    console.print(where, soft_wrap=True)


def _trained(experiment: "Experiment", device: str) -> tuple[dict[str, dict[str, float]], str]:
    """Scores by the name of what was trained, and a line that says where it is kept."""
    from dmlkit import training
    from dmlkit.extras import dreml

    loss, steps = experiment.loss, experiment.steps
    if loss == "dreml":
        ensemble = dreml.dreml(experiment, device=device, **experiment.loss_args)
        runs = ensemble.runs
        found = {
            f"one member, {steps} steps": runs[0].scores,
            f"dreml, {len(runs)} such members": ensemble.scores,
        }
        return found, f"{len(runs)} Runs, kept in {runs[0].path.parent}"
    done = training.run(experiment, device=device)
    how = "loaded from" if done.loaded else f"trained in {done.seconds:.0f} s, kept in"
    line = f"Run {done.path.name}, {how} {done.path.parent}"
    return {f"{loss}, {steps} steps": done.scores}, line


@app.command()
def search(
    image: Annotated[Path, typer.Argument(help="A picture file.")],
    run: Annotated[str, typer.Option(help="A Run: its folder, or its name as `train` says it.")],
    pictures: Annotated[
        Path | None, typer.Option(help="Folder of pictures to search; else the Run's data set.")
    ] = None,
    split: Annotated[str | None, typer.Option(help="Of that data set; else the Run's.")] = None,
    root: Root = None,
    count: Annotated[int, typer.Option(min=1, help="How many to find.")] = 5,
    kind: Annotated[str, typer.Option(help="Of the index: flat, ivfpq or hnsw.")] = "flat",
    index: Annotated[Path | None, typer.Option(help="Its file; else one in the cache.")] = None,
    panel: Annotated[Path | None, typer.Option(help="A PNG to write: what was found.")] = None,
    device: Device = "auto",
) -> None:
    """Find the pictures most like one, by the model of a Run; they are indexed the first time."""
    _use_root(root)
    from dmlkit.extras import search as room

    try:
        done = room.find_run(run)
        gallery = room.gallery(done, pictures, split)
        path = index or room.place_of_index(done, pictures, split)
        made, built = room.index(done, gallery, path, kind, device)
        found = room.nearest(done, gallery, made, image, count, device)
        if panel:
            figure = room.panel(done, gallery, image, found)
            write_whole({panel: partial(figure.savefig, format="png")})
    except (ValueError, TypeError, OSError, RuntimeError) as error:
        raise _fail(error) from error
    measure = str(made.metric)
    table = Table(title=f"most like {image.name}")
    for column in (measure, "class", "picture"):
        table.add_column(column, overflow="fold")
    for row in found.to_dict("records"):
        table.add_row(f"{row[measure]:.3f}", row["class"], row["picture"])
    console.print(table)
    recall = made.facts.get("recall")
    share = "" if recall is None else f"; it finds {recall:.1%} of the exact 10 nearest"
    how = "built, kept in" if built else "loaded from"
    console.print(f"{kind} index of {len(made)} pictures, {how} {path}{share}", soft_wrap=True)


@app.command()
def tune(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[LOSS]...", help="Which losses; none means all.")
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="Of every loss.")] = 24,
    steps: Annotated[int, typer.Option(min=1, help="Of every trial.")] = 280,
    storage: Annotated[str, typer.Option(help="A file, or a database's URL.")] = "data/tuning.log",
    output: Annotated[Path, typer.Option(help="Folder of trials.csv and recipes.json.")] = Path(
        "data/tuning"
    ),
    device: Device = "auto",
    scheduler: Scheduler = None,
    settings: Settings = None,
) -> None:
    """Seek good settings of every loss on validation classes, with the same budget for each."""
    from dmlkit import training
    from dmlkit.extras import tuning

    _use_scheduler(scheduler)
    if "://" not in storage:
        storage = str(Path(storage).resolve())  # workers may stand in another folder
    try:
        base = training.Experiment(steps=steps, **_literals(settings or []))
        found = tuning.tune(storage, names or (), trials, base, device=device)
    except ImportError as error:
        message = "tuning needs Optuna: pip install --editable '.[tune]'"
        raise _fail(ImportError(message)) from error
    except (ValueError, TypeError, OSError, RuntimeError) as error:
        raise _fail(error) from error
    output.mkdir(parents=True, exist_ok=True)
    recipes = tuning.recipes(found)
    texts = {
        "trials.csv": found.to_csv(index=False),
        "recipes.json": json.dumps(recipes, indent=1) + "\n",
    }
    write_whole({output / n: partial(Path.write_text, data=text) for n, text in texts.items()})
    table = Table(title=f"best of {trials} trials on validation classes, {steps} steps each")
    for column in ("loss", "R@1 (%)", "default (%)", "settings"):
        table.add_column(column)
    for name, mine in found.groupby("loss", sort=False):
        best, first = 100 * mine["recall_at_1"].max(), 100 * mine["recall_at_1"].iloc[0]
        table.add_row(str(name), f"{best:.1f}", f"{first:.1f}", json.dumps(recipes[str(name)]))
    console.print(table)


@app.command()
def claims(
    parts: Annotated[bool, typer.Option(help="Every part with its numbers.")] = False,
    markdown: Annotated[bool, typer.Option(help="As a Markdown table.")] = False,
    write: Annotated[
        Path | None, typer.Option(help="Put that table between this file's <!-- claims --> marks.")
    ] = None,
) -> None:
    """Print the ledger: what our own runs say of every claim, from the numbers of figures/."""
    from dmlkit import claims as room

    ledger = room.verdicts()
    if write:
        text = write.read_text(encoding="utf-8")
        pieces = re.split(r"(?<=<!-- claims -->\n).*(?=<!-- /claims -->)", text, flags=re.DOTALL)
        if len(pieces) != 2:
            raise _fail(
                ValueError(
                    f"{write} needs a line <!-- claims --> and one <!-- /claims --> below it"
                )
            )
        text = (room.markdown(ledger) + "\n").join(pieces)
        write_whole({write: partial(Path.write_text, data=text)})
        return
    if markdown:
        typer.echo(room.markdown(ledger))
        return
    title = "the claims of three papers, and what our own runs say"
    table = Table(title=title, box=SIMPLE_HEAD, show_edge=False, padding=0)
    columns: tuple[str, ...] = ("", "claim", "verdict", "parts", "after Holm", "figures")
    if parts:
        columns = ("claim", "part", "verdict", "effect", "interval", "n", "Holm", "figure")
    whole = {"verdict": 12, "parts": 15, "effect": 9, "interval": 11}  # no word or number is broken
    for column in columns:
        table.add_column(column, overflow="fold", min_width=whole.get(column))
    if parts:
        for row in ledger.itertuples():
            interval = "" if row.low != row.low else f"[{row.low:+.3g}, {row.high:+.3g}]"
            tested = row.p == row.p and row.verdict != "inconclusive"
            holm = ("stands" if row.holm else "falls") if tested else ""
            numbers = (f"{row.effect:+.3g}", interval, str(row.n), holm)
            table.add_row(row.claim, row.part, row.verdict, *numbers, row.figure)
    else:
        for name, row in room.summary(ledger).iterrows():
            claim = room.table()[str(name)]["claim"]
            cells = (row["verdict"], row["parts"], row["holm"], row["figures"])
            table.add_row(str(name), claim, *cells)
    console.print(table)


data = typer.Typer(no_args_is_help=True, help="Check data sets, and put them in place.")
app.add_typer(data, name="data")


@data.command()
def check(
    name: Annotated[str, typer.Argument(help="glyphs, omniglot, cub, cars, sop, inshop, folder.")],
    root: Root = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="An argument of the set as NAME=JSON.")
    ] = None,
) -> None:
    """Count a data set's splits, and name what is missing, too few or unreadable in it."""
    table = Table(title=name)
    for column in ("split", "images", "classes", "groups"):
        table.add_column(column, justify="right")
    wrong: list[str] = []
    try:
        args = _literals(settings or [])
        for split in ("train", "test", "val"):
            try:
                counts, found = _inspected(name, split, root, args)
            except ValueError as error:
                if split != "val":
                    raise
                table.caption = str(error)
                continue
            wrong += found
            table.add_row(split, *map(str, counts))
    except (ValueError, OSError) as error:
        raise _fail(error) from error
    console.print(table)
    for line in wrong:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    if wrong:
        raise _fail(ValueError(f"{name} is not complete: {len(wrong)} faults"))


def _inspected(
    name: str, split: str, root: Path | None, args: dict[str, Any]
) -> tuple[tuple[int, int, int], list[str]]:
    """A split's images, classes and groups, and a line for each fault: files are all decoded."""
    from dmlkit.data import benchmarks, load, pictures

    files = name in (*benchmarks.BENCHMARKS, "folder")
    images = load(name, split, root, check=not files, **args)
    wrong: list[str] = []
    if isinstance(images.images, pictures.Pictures):
        wrong = list(pictures.unreadable(images.images.paths).values())
    if name in benchmarks.BENCHMARKS and not args.get("validation"):
        queries = 0 if images.queries is None else int(images.queries.sum())
        found = benchmarks.Count(len(images), images.num_classes, queries)
        wrong += filter(None, [benchmarks.miscounted(name, split, found)])
    return (len(images), images.num_classes, len(set(images.groups))), wrong


@data.command()
def get(
    name: Annotated[str, typer.Argument(help="omniglot, cub, cars, sop or inshop.")],
    root: Root = None,
) -> None:
    """Fetch a data set, or say how to come by it; verify it, unpack it, and check it."""
    from dmlkit import ROOT
    from dmlkit.data import benchmarks

    folder = root or Path(os.environ.get("DMLKIT_DATA") or ROOT / "data")
    try:
        benchmarks.get(name, folder)
    except (ValueError, OSError) as error:
        raise _fail(error) from error
    check(name, folder)


@app.command()
def reproduce(
    notebooks: Annotated[
        list[str] | None, typer.Argument(help="e.g. 00 01_measuring_retrieval; none means all.")
    ] = None,
    profile: Annotated[str, typer.Option(help="smoke, ci or full.")] = "ci",
    workers: Annotated[int | None, typer.Option(min=1, help="Notebooks at a time.")] = None,
    check: Annotated[bool, typer.Option(help="Compare with the committed numbers.")] = False,
    force: Annotated[bool, typer.Option(help="Run also what has not changed.")] = False,
    timeout: Annotated[float, typer.Option(help="Minutes that one notebook may take.")] = 120,
    build: Annotated[Path | None, typer.Option(help="Folder of what runs leave.")] = None,
    scheduler: Scheduler = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A notebook parameter as NAME=JSON.")
    ] = None,
) -> None:
    """Run the course's notebooks and make their figures."""
    from dmlkit import reproduce as room

    _use_scheduler(scheduler)
    try:
        good = room.reproduce(
            notebooks or (), profile=profile, workers=workers, check=check, force=force,
            timeout_minutes=timeout, parameters=_literals(settings or []), build=build,
        )  # fmt: skip
    except (ValueError, TypeError, OSError, RuntimeError) as error:
        raise _fail(error) from error
    if not good:
        raise typer.Exit(1)


def _without_solution(source: str) -> str:
    """Code whose solution, marked as nbgrader marks it, has become a stub.

    >>> print(_without_solution("a\\n  ### BEGIN SOLUTION\\n  b\\n  ### END SOLUTION\\nc"))
    a
      raise NotImplementedError("your turn")
    c
    """
    return _SOLUTION.sub(r'\1raise NotImplementedError("your turn")', source)


@app.command()
def student(
    folder: Annotated[
        Path, typer.Argument(help="Where the students' notebooks go, beside figures/.")
    ] = Path("student"),
) -> None:
    """Copy the course without its solutions: what stands between the markers becomes a stub."""
    import nbformat

    from dmlkit import ROOT

    folder.mkdir(parents=True, exist_ok=True)
    for source in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb")):
        notebook = nbformat.read(source, as_version=4)
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.source = _without_solution(cell.source)
        nbformat.write(notebook, folder / source.name)
        console.print(folder / source.name)


@app.command()
def doctor() -> None:
    """Tell what this machine offers dmlkit, and what is missing."""
    import platform
    from importlib import metadata

    import torch

    from dmlkit import ROOT, cache_folder

    table = Table(title="dmlkit doctor", show_header=False)
    table.add_row("python", platform.python_version())
    for package in ("torch", "torchvision", "faiss-cpu", "numpy", "papermill", "umap-learn"):
        table.add_row(package, metadata.version(package))
    table.add_row("cores", str(os.cpu_count()))
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none (the CPU will do)"
    table.add_row("GPU", gpu)
    table.add_row("project", str(ROOT))
    table.add_row("cache", str(cache_folder()))
    table.add_row("DMLKIT_DATA", os.environ.get("DMLKIT_DATA", "not set: data/"))
    console.print(table)
    folder = cache_folder()
    while not folder.exists():
        folder = folder.parent
    if not os.access(folder, os.W_OK):
        raise _fail(OSError(f"{folder} cannot be written to: set DMLKIT_CACHE to one that can"))


if __name__ == "__main__":
    sys.exit(app())
