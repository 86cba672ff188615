"""Commands that take a Run to where it is used: a service, and ONNX."""

import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dmlkit import cache_folder
from dmlkit.cli import terminal
from dmlkit.cli.terminal import Device, Root, use_root
from dmlkit.files import write_whole

if TYPE_CHECKING:
    from dmlkit import service


def serve(
    run: Annotated[str, typer.Argument(help="A Run: its folder, or its name as `train` says it.")],
    pictures: Annotated[
        Path | None, typer.Option(help="The catalog, a folder per class; else the Run's data.")
    ] = None,
    root: Root = None,
    share: Annotated[float, typer.Option(help="Of strangers, who may be answered.")] = 0.1,
    strangers: Annotated[
        Path | None, typer.Option(help="Pictures of what is not in the catalog, to choose by.")
    ] = None,
    host: Annotated[str, typer.Option(help="Whom to listen to; else this machine alone.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="0: any that is free.")] = 8008,
    device: Device = "auto",
) -> None:
    """Answer pictures with products, or "not in the catalog": POST / of bytes, GET /health."""
    use_root(root)
    try:
        from dmlkit import service
    except ImportError as error:
        how = "pip install --editable '.[service]'"
        raise ImportError(f"a service needs starlette and uvicorn: {how}") from error
    from dmlkit import search, training
    from dmlkit.cli import practice

    done = search.find_run(run)
    gallery = search.gallery(done, pictures)
    name = pictures.name if pictures else done.experiment.split  # as `search` keeps it
    path = cache_folder() / "indices" / f"{done.path.name}-{name}"
    made, new = search.index(done, gallery, path, device=device)
    model = done.model().to(training.device_type(device))
    chosen = service.threshold(done, model, made, share, strangers)
    catalog = service.Catalog(done, model, made, chosen.least)
    _tell(catalog, new, chosen)
    own = done.experiment.data in practice.OWN and done.experiment.split != "train"
    if own and pictures is None:
        terminal.console.print(
            "only products that did not train are searched: --pictures FOLDER searches all of a "
            "folder, `final` trains for that",
            soft_wrap=True,
        )
    if host not in ("127.0.0.1", "localhost", "::1"):
        terminal.console.print(
            "whoever reaches this machine can ask: there is no password", soft_wrap=True
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family) as listening:
        where = f"http://{host}:{listening.getsockname()[1]}/"
        terminal.console.print(
            f"POST pictures to {where}, GET {where}health; Ctrl+C ends it", soft_wrap=True
        )
        terminal.console.print(
            f"curl -H 'Content-Type: image/jpeg' --data-binary @PICTURE {where}", soft_wrap=True
        )
        service.server(catalog).run(sockets=[listening])


def _tell(catalog: "service.Catalog", new: int, chosen: "service.Threshold") -> None:
    """Print what is searched, and what its threshold rests on."""
    from dmlkit import service

    found = catalog.health()
    line = f"{found['pictures']} pictures of {found['products']} products, {new} of them new"
    terminal.console.print(f"{line}; answers within {found['answers_within']}", soft_wrap=True)
    line = (
        f"chosen by {chosen.strangers} strangers of {chosen.products} products; of those of as "
        f"many further ones {100 * chosen.low:.0f} to {100 * chosen.high:.0f} % pass (95 %)"
    )
    terminal.console.print(line, soft_wrap=True)
    line = "how many pictures of known products are answered right is not told: too few pictures"
    if chosen.known:
        line = (
            f"pictures of known products: {100 * chosen.right:.0f} % are answered right, by "
            f"{chosen.known} of the catalog without their near copies; a larger --share answers "
            "more of them, and of strangers"
        )
    terminal.console.print(line, soft_wrap=True)
    if chosen.trained:
        terminal.console.print(service.TRAINED, soft_wrap=True)


def export(
    run: Annotated[str, typer.Argument(help="A Run: its folder, or its name as `train` says it.")],
    file: Annotated[Path, typer.Argument(help="To be written, .onnx.")],
) -> None:
    """Write a Run's model, or its head on features, as one ONNX file of the same numbers."""
    import torch

    from dmlkit import models
    from dmlkit.search import find_run

    try:
        import onnxscript  # noqa: F401 - which torch needs to make a graph
        from onnxruntime import InferenceSession
    except ImportError as error:
        how = "pip install --editable '.[site]'"
        raise ImportError(f"an export needs onnxscript and onnxruntime: {how}") from error
    done = find_run(run)
    model, features = done.model(), done.image_shape[1:] == (1, 1)
    shape = (3, *done.image_shape)
    images = torch.rand(shape) if features else torch.randint(256, shape, dtype=torch.uint8)
    graph = models.to_onnx(model, images)
    (found,) = InferenceSession(graph).run(None, {"pixels": images.numpy()})
    with torch.inference_mode():
        apart = float((torch.from_numpy(found) - model(images)).abs().max())
    if not apart < 1e-3:
        raise ArithmeticError(
            f"the graph differs from the model by {apart:.2g}: nothing is written"
        )
    line = f"{file}: {len(graph) / 1e6:.1f} MB, equal to the model within {apart:.1g}"
    write_whole({file: lambda beside: beside.write_bytes(graph)})
    terminal.console.print(line, soft_wrap=True)
