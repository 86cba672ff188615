"""A backbone and an embedding head: images in, raw embeddings out."""

import inspect
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dmlkit import ROOT, geometry
from dmlkit.checks import check_arguments, check_count, check_flag
from dmlkit.pretrained import from_huggingface, from_torchvision

#: Weights of ConvNets that were trained as classifiers of Glyphs, a file for each of their widths.
PRETRAINED = ROOT / "data" / "pretrained"

# torchvision and timm take seconds to import: only the models that are theirs wait for them.


class ConvNet(nn.Sequential):
    """A small convolutional network: a strided convolution, then per width a 3 × 3 convolution and
    2 × 2 max-pool, each followed by BatchNorm and ReLU, and the head. ``pretrained`` starts all but
    the head from a classifier of Glyphs, for gray images, and for the widths that there is one of
    (see ``data/README.md``).

    Images (B, channels, size, size) -> raw embeddings (B, dim). Only the first layer, whose output
    is the largest, is strided instead of pooled, and pooling comes before BatchNorm and ReLU: those
    layers are bound by memory on a CPU, and generalize as well this way. Raises ValueError where
    the image is too small to be halved once per width.

    >>> ConvNet(dim=64)(torch.zeros(2, 1, 32, 32)).shape
    torch.Size([2, 64])
    """

    def __init__(
        self,
        dim: int,
        widths: Sequence[int] = (8, 16, 32, 96),
        head: str = "linear",
        normalize: bool = False,
        channels: int = 1,
        size: int = 32,
        pretrained: bool = False,
    ) -> None:
        check_count(dim=dim, channels=channels, size=size)
        check_flag(pretrained=pretrained)
        if not isinstance(widths, list | tuple) or not widths:
            raise ValueError(f"widths must be numbers of channels, but are {widths!r}")
        check_count(**{f"widths[{i}]": width for i, width in enumerate(widths)})
        side = size // 2 ** len(widths)
        if side < 1:
            raise ValueError(
                f"{len(widths)} halvings need images of at least {2 ** len(widths)} pixels a side, "
                f"but these have {size}"
            )
        layers: list[nn.Module] = [
            nn.Conv2d(channels, widths[0], 4, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(widths[0]),
            nn.ReLU(inplace=True),
        ]
        for before, after in pairwise(widths):
            layers += [
                nn.Conv2d(before, after, 3, padding=1, bias=False),
                nn.MaxPool2d(2),
                nn.BatchNorm2d(after),
                nn.ReLU(inplace=True),
            ]
        super().__init__(*layers, nn.Flatten())
        if pretrained:
            self.load_state_dict(_classifier_of_glyphs(widths), strict=True)
        self.head = build_head(head, widths[-1] * side**2, dim, normalize)  # the last of the layers


class MultiScaleConvNet(nn.Module):
    """A ConvNet with a head after each of its last widths, their embeddings joined, L, M, H.

    Images (B, channels, size, size) -> raw embeddings (B, dim), of which each of ``scales`` heads
    has an equal part (see ``MultiScaleLoss``). Features are averaged over a grid as coarse as the
    last one's before they come to a head. Raises ValueError as ConvNet does, and where there are
    fewer widths or dimensions than scales. Source: the heads of Wang et al. 2019, "Ranked List Loss
    for Deep Metric Learning", as its authors' code joins them; theirs have hidden layers.

    >>> MultiScaleConvNet(dim=96)(torch.zeros(2, 1, 32, 32)).shape
    torch.Size([2, 96])
    """

    def __init__(
        self,
        dim: int,
        scales: int = 3,
        widths: Sequence[int] = (8, 16, 32, 96),
        head: str = "linear",
        normalize: bool = False,
        channels: int = 1,
        size: int = 32,
    ) -> None:
        super().__init__()
        if not 1 <= scales <= min(len(widths), dim):
            raise ValueError(
                f"scales must be 1 to the number of widths, {len(widths)}, and of dimensions, "
                f"{dim}, but is {scales}"
            )
        layers = list(ConvNet(dim, widths, channels=channels, size=size))[:-2]  # without its head
        ends = [3 + 4 * i for i in range(len(widths))][-scales:]  # a width has four layers
        self.stages = nn.ModuleList(
            nn.Sequential(*layers[start:end]) for start, end in pairwise([0, *ends])
        )
        side = size // 2 ** len(widths)
        self.pool = nn.AdaptiveAvgPool2d(side)
        sizes = [len(part) for part in torch.empty(dim).tensor_split(scales)]
        self.head = nn.ModuleList(
            build_head(head, width * side**2, part, normalize)
            for width, part in zip(widths[-scales:], sizes, strict=True)
        )

    def forward(self, images: Tensor) -> Tensor:
        parts, x = [], images
        for stage, head in zip(self.stages, self.head, strict=True):
            x = stage(x)
            parts.append(head(self.pool(x).flatten(1)))
        return torch.cat(parts, dim=1)


class Backbone(NamedTuple):
    """A published network without its classifier, and the pixels that it was trained on."""

    net: nn.Module
    features: int  # how many it gives
    mean: Sequence[float]  # of each channel of pixels 0..1
    std: Sequence[float]


class Embedder(nn.Sequential):
    """A published network between its own pixel scale and an embedding head (see ``build_head``).

    Pixels 0..1 (B, 1 or 3, H, W) -> embeddings (B, dim). Gray pictures count as three equal
    channels. With ``freeze_batch_norm`` the backbone's BatchNorm layers keep their statistics in
    training mode too, and their scale and shift do not learn; the head's BatchNorm always learns.
    """

    def __init__(
        self,
        backbone: Backbone,
        dim: int,
        head: str = "linear",
        normalize: bool = False,
        freeze_batch_norm: bool = False,
    ) -> None:
        parts = {
            "scale": Standardize(backbone.mean, backbone.std),
            "backbone": backbone.net,
            "head": build_head(head, backbone.features, dim, normalize),
        }
        super().__init__(OrderedDict(parts))
        layers = backbone.net.modules() if freeze_batch_norm else ()
        self.frozen = [layer for layer in layers if isinstance(layer, nn.BatchNorm2d)]
        if freeze_batch_norm and not self.frozen:
            raise ValueError("freeze_batch_norm: this model has no BatchNorm to freeze")
        for layer in self.frozen:
            layer.requires_grad_(False)
        self.train()

    def train(self, mode: bool = True) -> "Embedder":
        """As every module's, but what is frozen stays in evaluation mode."""
        super().train(mode)
        for layer in self.frozen:
            layer.eval()
        return self


class Standardize(nn.Module):
    """(pixels − mean)/std of each channel: (B, 1 or 3, H, W) -> (B, 3, H, W).

    >>> Standardize([0.5, 0.5, 0.5], [0.5, 0.5, 0.5])(torch.ones(1, 1, 2, 2)).shape
    torch.Size([1, 3, 2, 2])
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        for name, values in (("mean", mean), ("std", std)):
            self.register_buffer(name, torch.tensor(values).view(-1, 1, 1), persistent=False)

    def forward(self, pixels: Tensor) -> Tensor:
        return (pixels - self.mean) / self.std


class GeM(nn.Module):
    """Generalized mean of each channel: ((1/N) Σ max(x, ε)^p)^(1/p), (B, C, H, W) -> (B, C, 1, 1).

    p is learned, with the backbone: 1 is the average of what is positive, ∞ the maximum.

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
        return F.adaptive_avg_pool2d(x.clamp(min=self.epsilon) ** self.p, 1) ** (1 / self.p)


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
        self.pool = _entry({"token": nn.Identity, **_POOLINGS}, "pooling", pooling)()

    def forward(self, pixels: Tensor) -> Tensor:
        tokens = self.transformer.forward_features(pixels)  # type: ignore[operator]
        first: Any = self.transformer.num_prefix_tokens  # tokens (B, first + N, width)
        if isinstance(self.pool, nn.Identity):
            return torch.mean(tokens[:, :first], dim=1)
        pooled: Tensor = self.pool(tokens[:, first:].mT.unsqueeze(3))  # of (B, width, N, 1)
        return pooled.flatten(1)


class UnitLength(nn.Module):
    """Embeddings on the unit sphere: (B, dim) -> (B, dim)."""

    def forward(self, embeddings: Tensor) -> Tensor:
        return geometry.normalize(embeddings)


def build_head(name: str, features: int, dim: int, normalize: bool = False) -> nn.Sequential:
    """What turns features (B, features) into embeddings (B, dim): a linear map of them as they are
    (``linear``), or normalized without learned scale and shift (``layer_norm``, as Zhai and Wu 2019
    use before a normalized softmax) or with them (``batch_norm``, SEC's); ``normalize`` puts the
    embeddings on the unit sphere. Raises ValueError for an unknown name.

    >>> [type(layer).__name__ for layer in build_head("layer_norm", 128, 64)]
    ['LayerNorm', 'Linear']
    """
    heads: dict[str, Callable[[], list[nn.Module]]] = {
        "linear": list,
        "layer_norm": lambda: [nn.LayerNorm(features, elementwise_affine=False)],
        "batch_norm": lambda: [nn.BatchNorm1d(features)],
    }
    before = _entry(heads, "head", name)()
    check_flag(normalize=normalize)
    return nn.Sequential(*before, nn.Linear(features, dim), *[UnitLength()] * normalize)


def resnet(
    name: str, pretrained: bool = False, pooling: str = "average", small: bool = False
) -> Backbone:
    """torchvision's ResNet; ``small`` makes its stem a 3 × 3 convolution without stride or pooling,
    for 32 × 32 pictures. Source: He et al. 2016, "Deep Residual Learning for Image Recognition".
    """
    if small and pretrained:
        raise ValueError("a small stem has no pretrained weights: choose small or pretrained")
    net = from_torchvision(name, pretrained)
    features = net.fc.in_features
    net.avgpool, net.fc = _entry(_POOLINGS, "pooling", pooling)(), nn.Identity()
    if small:
        net.conv1, net.maxpool = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Identity()
        nn.init.kaiming_normal_(net.conv1.weight, mode="fan_out", nonlinearity="relu")
    return Backbone(net, features, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))


def googlenet(pretrained: bool = False, pooling: str = "average") -> Backbone:
    """torchvision's GoogLeNet, which has BatchNorm after every convolution: the first of the
    networks that papers call Inception-BN. Sources: Szegedy et al. 2015, "Going Deeper with
    Convolutions"; Ioffe and Szegedy 2015, "Batch Normalization".
    """
    # The weights include classifiers halfway. torchvision would add transform_input to them, which
    # turns ImageNet's mean and std into those below.
    net = from_torchvision(
        "googlenet", pretrained, aux_logits=pretrained, init_weights=not pretrained
    )
    if pretrained:
        net.aux_logits, net.aux1, net.aux2 = False, None, None
    features = net.fc.in_features
    net.avgpool = _entry(_POOLINGS, "pooling", pooling)()
    net.dropout, net.fc = nn.Identity(), nn.Identity()
    return Backbone(net, features, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))


def transformer(
    name: str, pretrained: bool = False, pooling: str = "token", size: int = 224
) -> Backbone:
    """timm's vision transformer, for pictures of ``size`` × ``size`` pixels.

    Raises ImportError where timm is not installed, ValueError for a ``size`` that patches of 16
    pixels do not fill.
    """
    try:
        import timm
    except ImportError as error:
        raise ImportError(f"{name} is a model of timm: pip install --editable '.[vit]'") from error
    if size % 16:
        raise ValueError(f"{name} sees patches of 16 × 16 pixels: {size} is no multiple of 16")
    make = partial(timm.create_model, name, num_classes=0, img_size=size)
    net: Any = from_huggingface(name, make) if pretrained else make()
    scale = net.pretrained_cfg
    return Backbone(Tokens(net, pooling), net.num_features, scale["mean"], scale["std"])


def classifier_path(widths: Sequence[int]) -> Path:
    """Where the weights of a ConvNet of these widths lie that classified Glyphs.

    >>> classifier_path((8, 16, 32, 96)).name
    'glyphs_convnet_8_16_32_96.npz'
    """
    return PRETRAINED / f"glyphs_convnet_{'_'.join(map(str, widths))}.npz"


def _classifier_of_glyphs(widths: Sequence[int]) -> dict[str, Tensor]:
    """The state of a ConvNet of these widths, without its head, that classified Glyphs."""
    path = classifier_path(widths)
    try:
        with path.open("rb") as file, np.load(file) as arrays:
            return {name: torch.from_numpy(arrays[name]) for name in arrays.files}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        there = ", ".join(sorted(found.name for found in PRETRAINED.glob("glyphs_convnet_*.npz")))
        raise OSError(
            f"no pretrained weights of widths {tuple(widths)} ({error}): {path.name} is not among "
            f"those that come with the repository ({there}), or is damaged; "
            "studies.pretrain.pretrain(widths=...) makes it"
        ) from error


def _entry(table: dict[str, Callable[[], Any]], argument: str, name: str) -> Callable[[], Any]:
    if not isinstance(name, str) or name not in table:
        raise ValueError(f"unknown {argument} {name!r}; there are {', '.join(table)}")
    return table[name]


_CONVNETS: dict[str, Callable[..., nn.Module]] = {
    "convnet": ConvNet,
    "convnet_scales": MultiScaleConvNet,
}
_BACKBONES: dict[str, Callable[..., Backbone]] = {
    "resnet18": partial(resnet, "resnet18"),
    "resnet50": partial(resnet, "resnet50"),
    "googlenet_bn": googlenet,
    # Those that the official code of SEE and of Ermolov et al. 2022 (hyperbolic) fine-tunes.
    "vit_s": partial(transformer, "vit_small_patch16_224.augreg_in21k_ft_in1k"),
    "deit_s": partial(transformer, "deit_small_distilled_patch16_224.fb_in1k"),
    "dino_s": partial(transformer, "vit_small_patch16_224.dino"),
}


def build(name: str, dim: int, image: Tensor, **args: Any) -> nn.Module:
    """Make a backbone with its head by name, for images shaped like ``image`` (C, H, W).

    Every model takes pixels 0..1 (B, C, H, W) to embeddings (B, dim), and has a ``head``: what
    turns features into the embedding. All its other parameters are the backbone.

    ``convnet`` takes the arguments of ``ConvNet``, ``convnet_scales`` those of
    ``MultiScaleConvNet``; the others those of ``Embedder`` and of their
    backbone: ``resnet18`` and ``resnet50`` (11.2 and 23.5 million parameters) of ``resnet``,
    ``googlenet_bn`` (5.6 million) of ``googlenet``, ``vit_s``, ``deit_s`` and ``dino_s`` (21.7
    million) of ``transformer``. ``pooling`` is average, max, average_max, gem or, for transformers,
    token.

    Pretrained weights come from torchvision's or Hugging Face's cache, or are downloaded to it.
    Their SHA-256 is compared where the file's name gives it, also of a file that was placed there
    by hand, and nothing but tensors is read.

    Raises:
        ValueError: unknown name, pooling or head, or values that do not go together.
        TypeError: an argument that the model does not take.
        OSError: the pretrained weights cannot be had; says which file to place where.

    >>> type(build("convnet", dim=64, image=torch.zeros(1, 32, 32))).__name__
    'ConvNet'
    """
    _entry(_CONVNETS | _BACKBONES, "model", name)
    check_count(dim=dim)
    if not isinstance(image, Tensor) or image.ndim != 3:
        came = tuple(image.shape) if isinstance(image, Tensor) else image
        raise ValueError(f"image must be a tensor (C, H, W), but is {came!r}")
    made: list[Callable[..., Any]]
    made = [_CONVNETS[name]] if name in _CONVNETS else [Embedder, _BACKBONES[name]]
    takes = [list(inspect.signature(part).parameters) for part in made]
    accepted = [key for keys in takes for key in keys if key != "backbone"]
    check_arguments(f"model {name!r}", accepted, args)
    args = {"channels": image.shape[0], "size": image.shape[-1]} | args
    given, *of_backbone = ({k: args[k] for k in keys if k in args} for keys in takes)
    if name in _CONVNETS:
        return made[0](dim, **given)
    return Embedder(_BACKBONES[name](**of_backbone[0]), dim, **given)
