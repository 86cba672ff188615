"""Small trees of pictures, each in a format that is published, with the irregularities it has."""

import io
import zipfile
from pathlib import Path

import numpy as np
import scipy.io
from PIL import Image

WINDOWS = "\r\n"


def picture(path: Path, seed: int, mode: str = "RGB", size: tuple[int, int] = (48, 36)) -> Path:
    """A smooth random picture, in the format of its suffix."""
    coarse = np.random.default_rng(seed).integers(0, 256, (3, 3, 3), dtype=np.uint8)
    image = Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC).convert(mode)
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, {".jpg": "JPEG", ".jpeg": "JPEG"}.get(path.suffix.lower()))
    return path


def truncate(path: Path) -> Path:
    """Half of its bytes, as an interrupted transfer leaves them."""
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    return path


def pictures(paths: list[Path]) -> None:
    """Every third one gray-scale, every third one CMYK."""
    for seed, path in enumerate(paths):
        picture(path, seed, ("RGB", "L", "CMYK")[seed % 3])


def cub(folder: Path, classes: tuple[int, ...] = (1, 2, 100, 101, 200)) -> Path:
    """Three pictures a class; Windows line ends, and a name with a space."""
    names = [f"{c:03d}.Long_billed_Bird{c}/A bird_{c}_{i}.jpg" for c in classes for i in range(3)]
    pictures([folder / "images" / name for name in names])
    rows = [f"{i} {name}" for i, name in enumerate(names, 1)]
    (folder / "images.txt").write_text(WINDOWS.join(rows) + WINDOWS, newline="")
    rows = [f"{i} {classes[(i - 1) // 3]}" for i in range(len(names), 0, -1)]  # in another order
    (folder / "image_class_labels.txt").write_text("\n".join(rows) + "\n")
    return folder


def cars(folder: Path, classes: tuple[int, ...] = (1, 98, 99, 196)) -> Path:
    """Two pictures a class."""
    names = [f"car_ims/{i:06d}.jpg" for i in range(1, 2 * len(classes) + 1)]
    pictures([folder / name for name in names])
    kind = [("relative_im_path", "O"), ("bbox_x1", "O"), ("class", "O"), ("test", "O")]
    rows = [(name, 1, classes[i // 2], i % 2) for i, name in enumerate(names)]
    makes = np.array([f"Make{c} Model {c} 2012" for c in range(1, 197)], dtype=object)
    scipy.io.savemat(
        folder / "cars_annos.mat", {"annotations": np.array(rows, dtype=kind), "class_names": makes}
    )
    return folder


def sop(folder: Path) -> Path:
    """Two products that train, three that test, two pictures of each; upper-case suffixes."""
    first = 0
    for part, products in (("train", (1, 2)), ("test", (11319, 11320, 11321))):
        rows = ["image_id class_id super_class_id path"]
        for product in products:
            kind = ("chair_final", "bicycle_final")[product % 2]
            for i in range(2):
                first += 1
                name = f"{kind}/1110{product}_{i}.JPG"
                picture(folder / name, first)
                rows.append(f"{first} {product} {1 + product % 2} {name}")
        (folder / f"Ebay_{part}.txt").write_text("\n".join(rows))
    return folder


def inshop(folder: Path, index: str = "Eval", img: str = "img") -> Path:
    """Two items that train; two that test, with one query and two gallery pictures each."""
    rows = []
    for item, parts in {
        "id_00000002": ("train", "train"),
        "id_00000007": ("train", "train"),
        "id_00000001": ("query", "gallery", "gallery"),
        "id_00000009": ("gallery", "gallery", "query"),
    }.items():
        for i, part in enumerate(parts):
            name = f"WOMEN/Blouses Shirts/{item}/0{i}_1_front.jpg"
            picture(folder / img / name, len(rows))
            rows.append(f"img/{name}      {item} {part}")
    (folder / index).mkdir(exist_ok=True)
    text = WINDOWS.join([str(len(rows)), "image_name item_id evaluation_status", *rows])
    (folder / index / "list_eval_partition.txt").write_text(text, newline="")
    return folder


def classes(root: Path, names: str = "ant bee cat dog", each: int = 4, side: int = 20) -> Path:
    """One folder a class."""
    for c, name in enumerate(names.split()):
        for i in range(each):
            picture(root / name / f"{i}.png", 100 * c + i, size=(side + i, side + c))
    return root


def drawing(seed: int) -> bytes:
    """A 105 x 105 one-bit PNG with a dark square, 21 px wide, on white, at a random place."""
    paper = np.full((105, 105), 255, dtype=np.uint8)
    y, x = np.random.default_rng(seed).integers(0, 84, size=2)
    paper[y : y + 21, x : x + 21] = 0
    file = io.BytesIO()
    Image.fromarray(paper).convert("1").save(file, "PNG")
    return file.getvalue()


def archive(root: Path, part: str, alphabets: dict[str, int], seed: int) -> None:
    """Two drawings of each character, in the layout of the published files."""
    folder = (
        f"images_{part}" if part in ("background", "evaluation") else f"images_background_{part}"
    )
    with zipfile.ZipFile(root / f"{folder}.zip", "w") as file:
        file.writestr(f"{folder}/", "")
        for alphabet, characters in alphabets.items():
            for character in range(1, characters + 1):
                seed += 1
                for drawer in (1, 2):
                    name = f"character{character:02d}/{seed:04d}_{drawer:02d}.png"
                    file.writestr(f"{folder}/{alphabet}/{name}", drawing(2 * seed + drawer))


def omniglot(root: Path) -> Path:
    """Both small archives, with one alphabet in common."""
    root.mkdir(parents=True, exist_ok=True)
    archive(root, "small1", {"Greek": 3, "Korean": 5}, seed=0)
    archive(root, "small2", {"Greek": 3, "Sanskrit": 4, "Tagalog": 2}, seed=100)
    return root


def grocery(folder: Path, classes: tuple[int, ...]) -> Path:
    """The archive of the groceries: of some of 81 classes two test photographs, one train, one val.

    Every class has its picture in the catalog.
    """
    from dmlkit.data.grocery import NAME

    at = f"{NAME}/dataset"
    shown = picture(folder / "shown.jpg", 0, size=(20, 24)).read_bytes()
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / f"{NAME}.zip", "w") as file:
        rows = ["Class Name (str),Class ID (int),Coarse Class Name (str),Coarse Class ID (int),…,…"]
        for c in range(81):
            icon = f"/iconic-images-and-descriptions/Class-{c}_Iconic.jpg"
            rows.append(f"Class-{c},{c},Coarse-{c},{c},{icon},/text.txt")
            file.writestr(at + icon, shown)
        file.writestr(f"{at}/classes.csv", WINDOWS.join(rows))
        for part, each in (("train", 1), ("val", 1), ("test", 2)):
            names = [(f"{part}/Class-{c}/{i}.jpg", c) for c in classes for i in range(each)]
            for seed, (name, _) in enumerate(names):
                file.writestr(f"{at}/{name}", picture(folder / "one.jpg", seed).read_bytes())
            lines = "".join(f"{name}, {c}, {c}\n" for name, c in names)
            file.writestr(f"{at}/{part}.txt", lines)
    return folder / f"{NAME}.zip"
