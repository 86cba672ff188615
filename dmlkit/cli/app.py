"""The command line: ``dmlkit train | data | search``, and the commands of the checkout."""

import os
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

from dmlkit import cache_folder
from dmlkit.cli import terminal
from dmlkit.cli.settings import literals
from dmlkit.cli.terminal import Commands, Device, print_table, set_option
from dmlkit.files import write_whole

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
Settings = Annotated[
    list[str] | None, set_option("a field of Experiment, or an entry of one: data_args.crop.")
]


def _use_root(root: Path | None) -> None:
    if root is not None:
        os.environ["DMLKIT_DATA"] = str(root.resolve())


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
    start: Annotated[str | None, typer.Option(help="A Run of fewer steps, to go on from.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, show_default="0")] = None,
    device: Device = "auto",
    settings: Settings = None,
) -> None:
    """Train one Experiment (or load its Run), and score it on unseen classes beside baselines."""
    _use_root(root)
    from dmlkit import recipes, training
    from dmlkit.cli import practice
    from dmlkit.data import load, references
    from dmlkit.search import find_run
    from dmlkit.training.scoring import score

    given = {"data": data, "steps": steps, "seed": seed}
    changes = {name: value for name, value in given.items() if value is not None}
    asked = recipes.nested(literals(settings))
    if recipe is None and data in practice.PHOTOGRAPHS and not {"model", "model_args"} & set(asked):
        recipe, line = practice.recipe()
        terminal.console.print(line, soft_wrap=True)
    experiment = recipes.load(recipe, loss, changes | asked)
    if "classes" not in asked.get("sampler_args", {}):
        experiment, fewer = recipes.fitted(experiment)
        terminal.console.print(fewer, end="\n" if fewer else "", soft_wrap=True)
    images = load(experiment.data, experiment.split, **experiment.data_args)
    before = training.untrained(experiment, device)
    if experiment.data in practice.PHOTOGRAPHS:
        terminal.console.print(practice.near_copies(images, before), soft_wrap=True)
    scores = {name: score(experiment, images, x) for name, x in before.items()}
    known = references(experiment.data, experiment.split, experiment.data_args)
    columns = {name: each for name, each in scores.items() if name not in known}
    done = training.run(experiment, device=device, start=find_run(start) if start else None)
    columns[f"{experiment.loss}, {experiment.steps} steps"] = done.scores
    trained = load(experiment.data, "train", **experiment.data_args).class_names
    unseen = ", never seen in training" if set(trained).isdisjoint(images.class_names) else ""
    title = f"{experiment.data}, {experiment.split} classes{unseen} (%)"
    rows = (
        (name, *(f"{100 * each[name]:.1f}" for each in columns.values())) for name in done.scores
    )
    print_table(title, ["score", *columns], rows, "right")
    if known:  # in a line: more columns would not fit
        beside = (f"{name} {100 * scores[name]['recall_at_1']:.1f}" for name in known)
        terminal.console.print(f"recall_at_1 beside: {', '.join(beside)}", soft_wrap=True)
    if experiment.data in practice.PHOTOGRAPHS:
        line = practice.gain(images, before, done.embeddings)
        terminal.console.print(line, soft_wrap=True)
    how = "loaded from" if done.loaded else f"trained in {done.seconds:.0f} s, kept in"
    line = f"Run {done.path.name}, {how} {done.path.parent}"
    terminal.console.print(line, soft_wrap=True)


@app.command()
def search(
    image: Annotated[Path, typer.Argument(help="A picture file.")],
    run: Annotated[str, typer.Option(help="A Run: its folder, or its name as `train` says it.")],
    pictures: Annotated[
        Path | None, typer.Option(help="To search, a folder per class; else the Run's data.")
    ] = None,
    split: Annotated[str | None, typer.Option(help="Of that data set; else the Run's.")] = None,
    root: Root = None,
    count: Annotated[int, typer.Option(min=1, help="How many to find.")] = 5,
    index_type: Annotated[str, typer.Option(help="flat, ivfpq or hnsw.")] = "flat",
    index: Annotated[Path | None, typer.Option(help="Its file; else one in the cache.")] = None,
    panel: Annotated[Path | None, typer.Option(help="A PNG to write: what was found.")] = None,
    device: Device = "auto",
) -> None:
    """Find the pictures most like one, by the model of a Run; they are indexed the first time."""
    _use_root(root)
    from dmlkit import search

    done = search.find_run(run)
    gallery = search.gallery(done, pictures, split)
    name = pictures.name if pictures else split or done.experiment.split
    path = index or cache_folder() / "indices" / f"{done.path.name}-{name}"
    made, new = search.index(done, gallery, path, index_type, device)
    found = search.nearest(done, gallery, made, image, count, device)
    if panel:
        figure = search.panel(done, gallery, image, found)
        write_whole({panel: partial(figure.savefig, format="png", bbox_inches="tight")})
    measure = str(made.metric)
    rows = ((f"{row[measure]:.3f}", row["class"], row["picture"]) for _, row in found.iterrows())
    print_table(f"most like {image.name}", (measure, "class", "picture"), rows)
    line = f"{index_type} index of {len(made)} pictures, {new} of them new, kept in {path}"
    terminal.console.print(line, soft_wrap=True)


@data.command()
def check(
    name: Annotated[
        str,
        typer.Argument(help="glyphs, omniglot, cub, cars, sop, inshop, grocery(64), folder."),
    ],
    root: Root = None,
    settings: Annotated[list[str] | None, set_option("an argument of the data set.")] = None,
) -> None:
    """Count a data set's splits; say what is missing, too few or unreadable in it."""
    from dmlkit.data import SPLITS, arguments, load
    from dmlkit.data.pictures import Pictures, check_readable

    args, rows = literals(settings), []
    for split in SPLITS:
        if split == "val" and "validation" in arguments(name) and not args.get("validation"):
            continue  # there is none
        images = load(name, split, root, **args)
        if isinstance(images.images, Pictures) and name != "folder":  # which was decoded already
            check_readable(images.images.paths)
        counts = len(images), images.num_classes, len(set(images.groups))
        rows.append((split, *map(str, counts)))
    print_table(name, ("split", "images", "classes", "groups"), rows, "right")


@data.command()
def get(
    name: Annotated[str, typer.Argument(help="omniglot, cub, cars, sop, inshop or grocery.")],
    root: Root = None,
) -> None:
    """Fetch a data set, or say how to come by it; verify it, unpack it, and check it."""
    from dmlkit.data import benchmarks, default_root

    folder = root or default_root()
    benchmarks.get(name, folder)
    check(name, folder)


@data.command()
def features(
    network: Annotated[str, typer.Argument(help="NETWORK@SIDE, as tf_efficientnet_lite0@224.")],
    root: Root = None,
) -> None:
    """Keep what a pretrained network makes of the groceries, for heads that train on that alone."""
    from dmlkit import training
    from dmlkit.data import default_root, features, grocery

    name, side = network.split("@")
    folder = grocery.located(root or default_root())
    listing = grocery.listed(folder)
    placed = listing._replace(paths=folder / listing.paths)
    images = placed.image_set(crop=int(side), resize=int(side) * 9 // 8, keep_aspect=True)
    made = training.frozen(images, name).images[:]
    path = cache_folder() / "features" / f"grocery_{network}.npz"
    features.write(path, listing, made.flatten(1).numpy())
    terminal.console.print(f"{tuple(made.shape[:2])} features, kept in {path}", soft_wrap=True)


def _add_commands_of_the_checkout() -> None:
    """Those of ``course`` and ``studies``, which a wheel does not hold."""
    for point in metadata.entry_points(group="dmlkit.commands"):
        try:
            command = point.load()
        except ModuleNotFoundError:
            command = partial(_needs_checkout, point.name)
            command.__doc__ = "Needs a checkout of the project."
        app.command(point.name, help=command.__doc__)(command)


def _needs_checkout(name: str, _: Annotated[list[str] | None, typer.Argument()] = None) -> None:
    raise FileNotFoundError(f"`dmlkit {name}` needs a checkout of the project, with its notebooks")


_add_commands_of_the_checkout()

if __name__ == "__main__":
    app()
