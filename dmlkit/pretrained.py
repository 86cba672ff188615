"""Published weights, from torchvision's or Hugging Face's cache: tensors, and nothing else."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dmlkit.data.untrusted import check_regular


def from_torchvision(name: str, pretrained: bool, **args: Any) -> Any:
    """torchvision's network, with its first ImageNet weights, those that the papers had.

    Raises OSError where these cannot be had, or are others; says which file to place where.
    """
    from torchvision.models import get_model, get_model_weights

    net = get_model(name, **args)
    if not pretrained:
        return net
    url = get_model_weights(name).IMAGENET1K_V1.url
    folder = Path(torch.hub.get_dir()) / "checkpoints"

    def load() -> Any:
        path = folder / url.rsplit("/", 1)[1]
        if path.exists():  # torchvision compares the hash of what it downloads, but not of this
            _check_hash(path, path.stem.rsplit("-", 1)[1])
        # torchvision would unpickle it, and the eight digits can be made to fit by who means harm
        state = torch.hub.load_state_dict_from_url(
            url, str(folder), check_hash=True, weights_only=True
        )
        net.load_state_dict(state)
        return net

    return _had(load, url, f"{folder} ($TORCH_HOME/hub/checkpoints)")


def from_huggingface(name: str, make: Callable[..., nn.Module]) -> nn.Module:
    """timm's network as ``make`` makes it, with the weights that Hugging Face has of it.

    Raises OSError where these cannot be had, or are others; says which file to place where.
    """
    import timm
    from huggingface_hub import constants, hf_hub_download

    repository = str(timm.get_pretrained_cfg_value(name, "hf_hub_id"))

    def load() -> nn.Module:  # timm alone would take a pickle where there is no safetensors
        cache = constants.HF_HUB_CACHE
        path = Path(hf_hub_download(repository, "model.safetensors", cache_dir=cache))
        blob = path.resolve().name
        if len(blob) == 64:  # the cache names a file by its SHA-256, behind a link
            _check_hash(path, blob)
        source = {"file": str(path), "custom_load": False}
        return make(pretrained=True, pretrained_cfg_overlay=source)

    return _had(
        load,
        f"https://huggingface.co/{repository}/resolve/main/model.safetensors",
        f"{constants.HF_HUB_CACHE} ($HF_HOME/hub): run `hf download {repository} "
        "model.safetensors` on a machine that has a network, and copy its folder "
        f"models--{repository.replace('/', '--')}",
    )


def _check_hash(path: Path, expected: str) -> None:
    """Raise ValueError where a file's SHA-256 does not begin as its name says."""
    check_regular(path)
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()[: len(expected)]
    if found != expected:
        raise ValueError(
            f"{path} is not the published file: its SHA-256 begins with {found}, expected "
            f"{expected}; delete it"
        )


def _had(load: Callable[[], nn.Module], url: str, folder: str) -> nn.Module:
    """What is loaded, or an error that says how to do without a network."""
    try:
        return load()
    except Exception as error:  # each library raises kinds of its own
        told = str(error).partition("\n")[0]  # PyTorch goes on with advice that would run code
        raise OSError(
            f"no pretrained weights ({type(error).__name__}: {told}); where they cannot be "
            f"downloaded, place {url.rsplit('/', 1)[1]} from {url} in {folder}"
        ) from error
