"""A backbone and an embedding head: images in, raw embeddings out."""

import inspect
import math
import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dmlkit import ROOT, geometry
from dmlkit.backbones import BACKBONES, Backbone, is_published, published
from dmlkit.backbones import AverageMax as AverageMax
from dmlkit.backbones import GeM as GeM
from dmlkit.backbones import Tokens as Tokens
from dmlkit.backbones import googlenet as googlenet
from dmlkit.backbones import resnet as resnet
from dmlkit.backbones import transformer as transformer
from dmlkit.checks import check_arguments, check_choice, check_count, check_range
from dmlkit.data.images import to_float

#: Weights of ConvNets that were trained as classifiers of Glyphs, a file for each of their widths.
PRETRAINED = ROOT / "data" / "pretrained"


Size = int | Sequence[int]  # of a side, or height and width


def sides(size: Size) -> tuple[int, int]:
    """Height and width.

    >>> sides(32), sides((32, 16))
    ((32, 32), (32, 16))
    """
    height, width = (size, size) if isinstance(size, int) else size
    return height, width


def check_sides(images: Tensor, size: tuple[int, int]) -> None:
    """Refuse images of another size than the head was built for."""
    if images.shape[2:] != size:
        raise ValueError(
            f"this model was built for images of {size[0]} x {size[1]} pixels, but these are of "
            f"{images.shape[2]} x {images.shape[3]}: resize them, or build it for those"
        )


class ConvNet(nn.Sequential):
    """A small convolutional network: a strided convolution, then per width a 3 × 3 convolution and
    2 × 2 max-pool, each followed by BatchNorm and ReLU, and the head. ``pretrained`` starts all but
    the head from a classifier of Glyphs, for gray images, and for the widths that there is one of
    (see ``data/README.md``).

    Images (B, channels, H, W), of the ``size`` H = W or (H, W), see ``to_float`` -> raw embeddings
    (B, dim). Only the first layer, whose output is the largest, is strided instead of pooled, and
    pooling comes before BatchNorm and ReLU: those layers are bound by memory on a CPU, and
    generalize as well this way.

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
        size: Size = 32,
        pretrained: bool = False,
    ) -> None:
        height, width = grid = [side // 2 ** len(widths) for side in sides(size)]
        if min(grid) < 1:
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
                MaxPool(),
                nn.BatchNorm2d(after),
                nn.ReLU(inplace=True),
            ]
        super().__init__(*layers, nn.Flatten())
        if pretrained:
            with np.load(classifier_path(widths)) as arrays:
                self.load_state_dict({name: torch.from_numpy(arrays[name]) for name in arrays})
        self.head = build_head(head, widths[-1] * height * width, dim, normalize)  # the last layer
        self.sides = sides(size)

    def forward(self, images: Tensor) -> Tensor:
        check_sides(images, self.sides)
        return super().forward(to_float(images))


class MaxPool(nn.Module):
    """2 × 2 max-pool, to the bit as torch's: on a CPU that one is some eight times as fast where
    channels lie together in memory, so that two copies pay.

    >>> MaxPool()(torch.arange(16.0).reshape(1, 1, 4, 4)).flatten()
    tensor([ 5.,  7., 13., 15.])
    """

    def forward(self, x: Tensor) -> Tensor:
        if not x.is_cpu or x.is_contiguous(memory_format=torch.channels_last):
            return F.max_pool2d(x, 2)
        return F.max_pool2d(x.contiguous(memory_format=torch.channels_last), 2).contiguous()


class Linear(nn.Sequential):
    """A head alone: of features that a frozen network made, (B, channels, 1, 1), or of raw pixels.

    (B, channels, H, W), of the ``size`` H = W or (H, W) -> raw embeddings (B, dim).

    >>> Linear(dim=64, channels=1280, size=1)(torch.zeros(2, 1280, 1, 1)).shape
    torch.Size([2, 64])
    """

    def __init__(
        self,
        dim: int,
        head: str = "linear",
        normalize: bool = False,
        channels: int = 1,
        size: Size = 32,
    ) -> None:
        made = build_head(head, channels * math.prod(sides(size)), dim, normalize)
        super().__init__(OrderedDict(flatten=nn.Flatten(), head=made))
        self.sides = sides(size)

    def forward(self, images: Tensor) -> Tensor:
        check_sides(images, self.sides)
        return super().forward(to_float(images))


class MultiScaleConvNet(nn.Module):
    """A ConvNet with a head after each of its last widths, their embeddings joined, L, M, H.

    Images (B, channels, H, W) -> raw embeddings (B, dim), of which each of ``scales`` heads
    has an equal part (see ``MultiScaleLoss``). Features are averaged over a grid as coarse as the
    last one's before they come to a head. Source: the heads of Wang et al. 2019, "Ranked List Loss
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
        size: Size = 32,
    ) -> None:
        super().__init__()
        check_range(1, min(len(widths), dim), scales=scales)
        layers = list(ConvNet(dim, widths, channels=channels, size=size))[:-2]  # without its head
        ends = [3 + 4 * i for i in range(len(widths))][-scales:]  # a width has four layers
        self.stages = nn.ModuleList(
            nn.Sequential(*layers[start:end]) for start, end in pairwise([0, *ends])
        )
        height, width = [side // 2 ** len(widths) for side in sides(size)]
        self.pool = nn.AdaptiveAvgPool2d((height, width))
        sizes = [len(part) for part in torch.empty(dim).tensor_split(scales)]
        self.head = nn.ModuleList(
            build_head(head, channels * height * width, part, normalize)
            for channels, part in zip(widths[-scales:], sizes, strict=True)
        )

    def forward(self, images: Tensor) -> Tensor:
        parts, x = [], to_float(images)
        for stage, head in zip(self.stages, self.head, strict=True):
            x = stage(x)
            parts.append(head(self.pool(x).flatten(1)))
        return torch.cat(parts, dim=1)


class Embedder(nn.Sequential):
    """A published network between its own pixel scale and an embedding head (see ``build_head``).

    Images (B, 1 or 3, H, W), see ``to_float`` -> embeddings (B, dim). Gray counts as three equal
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
    """(pixels − mean)/std of each channel, see ``to_float``: (B, 1 or 3, H, W) -> (B, 3, H, W).

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
        return (to_float(pixels) - self.mean) / self.std


class UnitLength(nn.Module):
    """Embeddings on the unit sphere: (B, dim) -> (B, dim)."""

    def forward(self, embeddings: Tensor) -> Tensor:
        return geometry.normalize(embeddings)


def build_head(name: str, features: int, dim: int, normalize: bool = False) -> nn.Sequential:
    """What turns features (B, features) into embeddings (B, dim): a linear map of them as they are
    (``linear``), or normalized without learned scale and shift (``layer_norm``, as Zhai and Wu 2019
    use before a normalized softmax) or with them (``batch_norm``, SEC's); ``normalize`` puts the
    embeddings on the unit sphere.

    >>> [type(layer).__name__ for layer in build_head("layer_norm", 128, 64)]
    ['LayerNorm', 'Linear']
    """
    heads: dict[str, Callable[[], list[nn.Module]]] = {
        "linear": list,
        "layer_norm": lambda: [nn.LayerNorm(features, elementwise_affine=False)],
        "batch_norm": lambda: [nn.BatchNorm1d(features)],
    }
    check_choice(heads, head=name)
    return nn.Sequential(*heads[name](), nn.Linear(features, dim), *[UnitLength()] * normalize)


def classifier_path(widths: Sequence[int]) -> Path:
    """Where the weights of a ConvNet of these widths lie that classified Glyphs.

    >>> classifier_path((8, 16, 32, 96)).name
    'glyphs_convnet_8_16_32_96.npz'
    """
    return PRETRAINED / f"glyphs_convnet_{'_'.join(map(str, widths))}.npz"


def to_onnx(model: nn.Module, images: Tensor) -> bytes:
    """A model as an ONNX graph ``pixels`` -> embeddings, for batches of any size of such images.

    Images (B, C, H, W), B above 1, uint8 or float (see ``to_float``). Wants onnx and onnxscript.
    """
    graph = torch.onnx.export(
        model.eval(),
        (images,),
        input_names=["pixels"],
        dynamic_shapes=({0: torch.export.Dim("batch")},),
        dynamo=True,
        verbose=False,
    )
    assert graph is not None
    return graph.model_proto.SerializeToString()


_OWN: dict[str, Callable[..., nn.Module]] = {
    "convnet": ConvNet,
    "convnet_scales": MultiScaleConvNet,
    "linear": Linear,
}


def build(name: str, dim: int, image: Tensor, **args: Any) -> nn.Module:
    """Make a backbone with its head by name, for images shaped like ``image`` (C, H, W).

    Every model takes images (B, C, H, W), uint8 0..255 or float 0..1, to embeddings (B, dim), and
    has a ``head``: what turns features into the embedding. All its other parameters are the
    backbone.

    ``convnet`` takes the arguments of ``ConvNet``, ``convnet_scales`` those of
    ``MultiScaleConvNet``, ``linear`` those of ``Linear``; the others those of ``Embedder`` and of
    their backbone: ``resnet18`` and ``resnet50`` (11.2 and 23.5 million parameters) of ``resnet``,
    ``googlenet_bn`` (5.6 million) of ``googlenet``, ``vit_s``, ``deit_s`` and ``dino_s`` (21.7
    million) of ``transformer``, and any other name of timm or torchvision of ``published``.
    ``pooling`` is average, max, average_max, gem or, for transformers, token. Pretrained weights
    come from a package (``backbones.PACKAGED``), or from torchvision's or Hugging Face's cache, to
    which they are downloaded. A published network that starts without them says so in a warning,
    unless ``pretrained=False`` does.

    Raises:
        ValueError: an unknown name, pooling or head.
        TypeError: an argument that the model does not take.
        OSError: the pretrained weights cannot be had; says how to do without a network.

    >>> type(build("convnet", dim=64, image=torch.zeros(1, 32, 32))).__name__
    'ConvNet'
    """
    if not (name in _OWN or name in BACKBONES or is_published(name)):
        check_choice([*_OWN, *BACKBONES, "or any of timm or torchvision"], model=name)
    check_count(dim=dim)
    made: list[Callable[..., Any]]
    backbone = BACKBONES.get(name) or partial(published, name)
    made = [_OWN[name]] if name in _OWN else [Embedder, backbone]
    takes = [list(inspect.signature(part).parameters) for part in made]
    accepted = [key for keys in takes for key in keys if key != "backbone"]
    check_arguments(f"model {name!r}", accepted, args)
    height, width = image.shape[1:]
    size = height if height == width else (height, width)
    args = {"channels": image.shape[0], "size": size} | args
    given, *of_backbone = ({k: args[k] for k in keys if k in args} for keys in takes)
    if name in _OWN:
        return _OWN[name](dim, **given)
    found = backbone(**of_backbone[0])
    if "pretrained" not in args and not args.get("small"):  # stem, of which there are none
        warnings.warn(
            f"{name} starts from random weights, as if it had seen no picture: say pretrained=True "
            "(--set model_args.pretrained=true), or pretrained=False where that is meant",
            stacklevel=2,
        )
    return Embedder(found, dim, **given)
