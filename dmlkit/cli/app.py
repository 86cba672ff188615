"""The command line: ``dmlkit train | data | search``, and the commands of the checkout."""

from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dmlkit import cache_folder
from dmlkit.cli import deploy, terminal
from dmlkit.cli.settings import literals
from dmlkit.cli.terminal import Commands, Device, Root, print_table, set_option, use_root
from dmlkit.files import write_whole

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dmlkit.cli.practice import Rows
    from dmlkit.data import ImageSet
    from dmlkit.training import Experiment, Run

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    help="Learn, teach and honestly test deep metric learning.",
)
data = typer.Typer(no_args_is_help=True, help="Check data sets, and put them in place.")
app.add_typer(data, name="data")
Settings = Annotated[
    list[str] | None, set_option("a field of Experiment, or an entry of one: data_args.crop.")
]


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
        typer.Option(
            help="A data set; or your own, which --root is: folder, list (a CSV), features (.npz).",
            show_default="glyphs",
        ),
    ] = None,
    root: Root = None,
    steps: Annotated[int | None, typer.Option(min=1, show_default="280")] = None,
    start: Annotated[str | None, typer.Option(help="A Run of fewer steps, to go on from.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, show_default="0")] = None,
    device: Device = "auto",
    blend: Annotated[
        bool,
        typer.Option(
            "--blend",
            help="Keep weights between pretrained and learned ones if validation classes say so.",
        ),
    ] = False,
    unreadable: Annotated[
        str | None,
        typer.Option(
            help="skip: leave out your pictures that cannot be read.", show_default="refuse"
        ),
    ] = None,
    settings: Settings = None,
) -> None:
    """Train one Experiment (or load its Run), and score it on unseen classes beside baselines."""
    use_root(root)
    from dmlkit import recipes, training
    from dmlkit.cli import practice
    from dmlkit.data import load
    from dmlkit.search import find_run

    given = {"data": data, "steps": steps, "seed": seed, "data_args.unreadable": unreadable}
    given = {name: value for name, value in given.items() if value is not None}
    experiment = _asked(recipe, loss, given, recipes.nested(literals(settings)))
    if blend:
        experiment, told = practice.blended(experiment, device)
        _choice(told)
    images = load(experiment.data, experiment.split, **experiment.data_args)
    before = training.untrained(experiment, device)
    if experiment.data in practice.PHOTOGRAPHS:
        terminal.console.print(practice.near_copies(images, before), soft_wrap=True)
    done = training.run(experiment, device=device, start=find_run(start) if start else None)
    _report(images, before, done)
    how = "loaded from" if done.loaded else f"trained in {done.seconds:.0f} s, kept in"
    line = f"Run {done.path.name}, {how} {done.path.parent}"
    terminal.console.print(line, soft_wrap=True)
    if experiment.data in practice.OWN and experiment.split == "test":
        _next(done)


def _asked(
    recipe: str | None, loss: str | None, given: dict[str, Any], settings: dict[str, Any]
) -> "Experiment":
    """The Experiment of options and settings; what photographs take by themselves is printed."""
    from dmlkit import recipes
    from dmlkit.cli import practice

    data = given.get("data")
    own_steps = recipe is None and data in practice.OWN and "steps" not in given | settings
    if (
        recipe is None
        and data in practice.PHOTOGRAPHS
        and not {"model", "model_args"} & {*settings}
    ):
        recipe, line = practice.recipe(data)
        terminal.console.print(line, soft_wrap=True)
    experiment = recipes.load(recipe, loss, given | settings)
    if "classes" not in settings.get("sampler_args", {}):
        experiment, fewer = recipes.fitted(experiment)
        terminal.console.print(fewer, end="\n" if fewer else "", soft_wrap=True)
    if own_steps:
        experiment, line = practice.as_long(experiment)
        terminal.console.print(line, soft_wrap=True)
    return experiment


def _report(images: "ImageSet", before: dict[str, "NDArray[np.float32]"], done: "Run") -> None:
    """Print the scores of a Run beside those of what needs no training."""
    from dmlkit.cli import practice
    from dmlkit.data import load, references
    from dmlkit.training.scoring import score

    experiment = done.experiment
    scores = {name: score(experiment, images, x) for name, x in before.items()}
    known = references(experiment.data, experiment.split, experiment.data_args)
    columns = {name: each for name, each in scores.items() if name not in known}
    columns[f"{experiment.loss}, {experiment.steps} steps"] = done.scores
    trained = load(experiment.data, "train", **experiment.data_args).class_names
    unseen = ", never seen in training" if set(trained).isdisjoint(images.class_names) else ""
    photographs = experiment.data in practice.PHOTOGRAPHS
    copies = ", near copies counted" if photographs and images.queries is None else ""
    title = f"{experiment.data}, {experiment.split} classes{unseen}{copies} (%)"
    by_score = (
        (name, *(f"{100 * each[name]:.1f}" for each in columns.values())) for name in done.scores
    )
    print_table(title, ["score", *columns], by_score, "right")
    if known:  # in a line: more columns would not fit
        beside = (f"{name} {100 * scores[name]['recall_at_1']:.1f}" for name in known)
        terminal.console.print(f"recall_at_1 beside: {', '.join(beside)}", soft_wrap=True)
    if photographs:
        features = before.get("untouched features", done.embeddings)
        shown, word = practice.unlinked(images, features)
        without = "" if shown is images else " without near copies"
        for line in practice.gain(shown, before, done.embeddings, without):
            terminal.console.print(f"{word}{line}", soft_wrap=True)
            word = ""
        _expect(shown, done, without)


def _choice(rows: "Rows") -> None:
    """Print what validation classes say of steps and shares."""
    head = ["steps", "share of what was learned", "Recall@1", "more than without a change"]
    if rows[0][-1]:
        head.append("nearest other product of the same category")
    print_table("on validation classes (%)", head, (row[: len(head)] for row in rows), "right")


def _expect(images: "ImageSet", run: "Run", without: str) -> None:
    """Print what to expect among other numbers of products."""
    from dmlkit.cli import practice

    try:
        found = practice.expectation(images, run.embeddings, run.experiment.metric)
    except ValueError as error:  # too few pictures or classes, which end no training
        terminal.console.print(f"what to expect of more products is not told: {error}")
        return
    columns = {"recall_at_1": "Recall@1", "strangers": "strangers answered", "right": "known right"}
    rows = (
        (f"{'~' * row.model}{row.products}", *(f"{100 * getattr(row, c):.0f}" for c in columns))
        for row in found.itertuples()
    )
    title = f"what to expect{without}, by products in the gallery (%)"
    print_table(title, ["products", *columns.values()], rows, "right")
    line = (
        f"The threshold lets one stranger in {1 / practice.SHARE:.0f} through as the gallery "
        "is, chosen on other products; ~ is a model (openset.by_size), which further pictures test."
    )
    terminal.console.print(line, soft_wrap=True)


def _next(run: "Run") -> None:
    from dmlkit.cli import practice
    from dmlkit.data import default_root

    terminal.console.print("next:")
    for command in practice.following(run, default_root()):
        terminal.console.print(f"  {command}", soft_wrap=True)


@app.command()
def final(
    run: Annotated[str, typer.Argument(help="A measured Run of your own pictures.")],
    root: Root = None,
    steps: Annotated[int | None, typer.Option(min=1, show_default="by validation")] = None,
    apart: Annotated[
        float, typer.Option(min=0, max=0.5, help="Of products, which only choose the threshold.")
    ] = 0.2,
    device: Device = "auto",
) -> None:
    """Train on nearly all products of your own, as long as validation says.

    Without products apart a threshold lets twice as many strangers through as are asked for.
    """
    use_root(root)
    from dmlkit import training
    from dmlkit.cli import practice
    from dmlkit.search import find_run

    done = find_run(run)
    practice.last(done, 1, 1.0, 0)  # refuses what is not one's own
    blend = done.experiment.blend
    if steps is None:
        line = f"the Run took {done.seconds:.0f} s; validation trains 3.5 times as many steps"
        terminal.console.print(f"{line}, in up to {4 * done.seconds:.0f} s", soft_wrap=True)
        steps, blend, rows = practice.chosen(done, device)
        _choice(rows)
    wanted = practice.last(done, steps, blend, apart)
    made = training.run(wanted, device=device)
    line = f"{steps} steps, {blend:g} of what was learned, on {made.num_classes} classes"
    if apart := wanted.data_args["test_share"]:
        line = f"{line} ({100 * apart:g} % stay apart, to choose a threshold)"
    line = f"{line}: Run {made.path.name}, kept in {made.path.parent}"
    terminal.console.print(line, soft_wrap=True)
    _next(made)


app.command()(deploy.serve)
app.command()(deploy.export)


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
    rerank: Annotated[
        bool, typer.Option("--rerank", help="Order the first ten anew, by what matches in them.")
    ] = False,
    measure: Annotated[
        bool, typer.Option("--measure", help="Say what --rerank brings on held-out classes.")
    ] = False,
    device: Device = "auto",
) -> None:
    """Find the other pictures most like one, by the model of a Run; indexed the first time."""
    use_root(root)
    from dmlkit import search
    from dmlkit.cli import practice

    done = search.find_run(run)
    gallery = search.gallery(done, pictures, split)
    name = pictures.name if pictures else split or done.experiment.split
    path = index or cache_folder() / "indices" / f"{done.path.name}-{name}"
    made, new = search.index(done, gallery, path, index_type, device)
    most = max(count, practice.FIRST) if (rerank := rerank or measure) else count
    found = search.nearest(done, gallery, made, image, most + 1, device)
    itself = found["picture"].map(lambda name: Path(name).resolve() == image.resolve())
    found = found[~itself].head(most)
    if rerank:
        found, line = practice.reranked(done, gallery, image, found, measure, device)
        terminal.console.print(line, soft_wrap=True)
    found = found.head(count)
    if panel:
        figure = search.panel(done, gallery, image, found)
        write_whole({panel: partial(figure.savefig, format="png", bbox_inches="tight")})
    names = [*found.columns[3:][::-1], "class", "picture"]  # cosine, perhaps matches
    rows = [[f"{x:.3f}" if isinstance(x, float) else f"{x}" for x in row]
            for row in found[names].to_numpy().tolist()]  # fmt: skip
    print_table(f"most like {image.name}", names, rows)
    line = f"{index_type} index of {len(made)} pictures, {new} of them new, kept in {path}"
    terminal.console.print(line, soft_wrap=True)


@data.command()
def check(
    name: Annotated[
        str,
        typer.Argument(
            help="glyphs, omniglot, cub, cars, sop, inshop, grocery(64), folder, list, features."
        ),
    ],
    root: Root = None,
    settings: Annotated[list[str] | None, set_option("an argument of the data set.")] = None,
) -> None:
    """Count a data set's splits; say what is missing, too few or unreadable in it."""
    from dmlkit.data import SPLITS, arguments, default_root, load
    from dmlkit.data.own import readable
    from dmlkit.data.pictures import Pictures

    args, rows = literals(settings), []
    for split in SPLITS:
        if split == "val" and "validation" in arguments(name) and not args.get("validation"):
            continue  # there is none
        images = load(name, split, root, **args)
        if isinstance(images.images, Pictures) and "unreadable" not in arguments(name):
            readable(images.images.paths, root or default_root(), None, "refuse")
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
