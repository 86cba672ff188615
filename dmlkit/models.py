"""A backbone and an embedding head: images in, raw embeddings out."""

import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dmlkit import ROOT, geometry
from dmlkit.checks import check_arguments, check_choice, check_count, check_range
from dmlkit.files import told

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
    layers are bound by memory on a CPU, and generalize as well this way.

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
            with np.load(classifier_path(widths)) as arrays:
                self.load_state_dict({name: torch.from_numpy(arrays[name]) for name in arrays})
        self.head = build_head(head, widths[-1] * side**2, dim, normalize)  # the last of the layers


class MultiScaleConvNet(nn.Module):
    """A ConvNet with a head after each of its last widths, their embeddings joined, L, M, H.

    Images (B, channels, size, size) -> raw embeddings (B, dim), of which each of ``scales`` heads
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
        size: int = 32,
    ) -> None:
        super().__init__()
        check_range(1, min(len(widths), dim), scales=scales)
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


def _pooled(net: Any, pooling: str) -> int:
    """Give torchvision's network a pooling, and no classifier; returns the number of features."""
    check_choice(_POOLINGS, pooling=pooling)
    features = net.fc.in_features
    net.avgpool, net.fc = _POOLINGS[pooling](), nn.Identity()
    return int(features)


def resnet(
    name: str, pretrained: bool = False, pooling: str = "average", small: bool = False
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


def googlenet(pretrained: bool = False, pooling: str = "average") -> Backbone:
    """torchvision's GoogLeNet, which has BatchNorm after every convolution: the first of the
    networks that papers call Inception-BN. Sources: Szegedy et al. 2015, "Going Deeper with
    Convolutions"; Ioffe and Szegedy 2015, "Batch Normalization".
    """
    # The weights include classifiers halfway. torchvision would add transform_input to them, which
    # turns ImageNet's mean and std into those below.
    args = {"aux_logits": pretrained, "init_weights": not pretrained}
    net = _of_torchvision("googlenet", pretrained, **args)
    net.aux_logits, net.aux1, net.aux2, net.dropout = False, None, None, nn.Identity()
    return Backbone(net, _pooled(net, pooling), mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))


def transformer(
    name: str, pretrained: bool = False, pooling: str = "token", size: int = 224
) -> Backbone:
    """timm's vision transformer, for pictures of ``size`` × ``size`` pixels."""
    if size % 16:
        raise ValueError(f"{name} sees patches of 16 × 16 pixels: {size} is no multiple of 16")
    try:
        import timm
    except ImportError as error:
        raise ImportError(f"{name} is a model of timm: pip install --editable '.[vit]'") from error
    how = (
        f"run `hf download timm/{name}` on a machine that has a network, and copy its $HF_HOME/hub"
    )
    with _published(how) if pretrained else nullcontext():
        net: Any = timm.create_model(name, pretrained, num_classes=0, img_size=size)
    scale = net.pretrained_cfg
    return Backbone(Tokens(net, pooling), net.num_features, scale["mean"], scale["std"])


def _of_torchvision(name: str, pretrained: bool, **args: Any) -> Any:
    """torchvision's network, perhaps with its first ImageNet weights, those that the papers had."""
    from torchvision.models import get_model, get_model_weights

    net = get_model(name, **args)
    if pretrained:
        url = get_model_weights(name).IMAGENET1K_V1.url
        with _published(f"place {url} in {torch.hub.get_dir()}/checkpoints"):
            state = torch.hub.load_state_dict_from_url(url, check_hash=True, weights_only=True)
            net.load_state_dict(state)
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


def classifier_path(widths: Sequence[int]) -> Path:
    """Where the weights of a ConvNet of these widths lie that classified Glyphs.

    >>> classifier_path((8, 16, 32, 96)).name
    'glyphs_convnet_8_16_32_96.npz'
    """
    return PRETRAINED / f"glyphs_convnet_{'_'.join(map(str, widths))}.npz"


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
    ``MultiScaleConvNet``; the others those of ``Embedder`` and of their backbone: ``resnet18`` and
    ``resnet50`` (11.2 and 23.5 million parameters) of ``resnet``, ``googlenet_bn`` (5.6 million) of
    ``googlenet``, ``vit_s``, ``deit_s`` and ``dino_s`` (21.7 million) of ``transformer``.
    ``pooling`` is average, max, average_max, gem or, for transformers, token. Pretrained weights
    come from torchvision's or Hugging Face's cache, or are downloaded to it.

    Raises:
        ValueError: an unknown name, pooling or head.
        TypeError: an argument that the model does not take.
        OSError: the pretrained weights cannot be had; says how to do without a network.

    >>> type(build("convnet", dim=64, image=torch.zeros(1, 32, 32))).__name__
    'ConvNet'
    """
    check_choice(_CONVNETS | _BACKBONES, model=name)
    check_count(dim=dim)
    made: list[Callable[..., Any]]
    made = [_CONVNETS[name]] if name in _CONVNETS else [Embedder, _BACKBONES[name]]
    takes = [list(inspect.signature(part).parameters) for part in made]
    accepted = [key for keys in takes for key in keys if key != "backbone"]
    check_arguments(f"model {name!r}", accepted, args)
    args = {"channels": image.shape[0], "size": image.shape[-1]} | args
    given, *of_backbone = ({k: args[k] for k in keys if k in args} for keys in takes)
    if name in _CONVNETS:
        return _CONVNETS[name](dim, **given)
    return Embedder(_BACKBONES[name](**of_backbone[0]), dim, **given)
