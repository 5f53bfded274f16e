"""Every kind of file that is read from outside: valid examples, and what reads them."""

import hashlib
import io
import json
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from mutations import mutated
from PIL import Image

from histolumen.config import load_config
from histolumen.config.recipes import recipe_text
from histolumen.data.image import image_size, read_image, read_mask
from histolumen.data.manifest import read_manifest
from histolumen.encoders.backbone import build_backbone
from histolumen.encoders.weights import read_tensors
from histolumen.engine.checkpoint import ModelCard, _digest, find_model, load_model, load_state, save_model
from histolumen.engine.earlier import Ledger
from histolumen.engine.runlog import read_metrics
from histolumen.engine.slides.batch import read_state, save_slides
from histolumen.methods.base import build_method
from histolumen.report.benchmark import BenchmarkPlan
from histolumen.report.runs.measured import is_trained, training_seconds
from histolumen.report.runs.plan import read_plan
from histolumen.slides.annotations import read_outlines
from tiny import TINY

_JSON_WORDS = (b"null", b"true", b"-1", b"1e999", b"NaN", b"{}", b"[]", b'""', b'"\\ud800"', b"[" * 3000, b"9" * 5000)


@dataclass(frozen=True)
class Kind:
    """A kind of input.

    Args:
        name: of the file that is written; for a model, of the file that is damaged.
        examples: valid files.
        tokens: words of the format.
        read: reads the file; given its path.
        finish: makes a damaged file consistent again, such as its checksum, for a half of the inputs.
    """

    name: str
    examples: list[bytes]
    tokens: tuple[bytes, ...]
    read: Callable[[Path], object]
    finish: Callable[[bytes], bytes] | None = None

    def make(self, rng: random.Random) -> bytes:
        """One damaged file."""
        data = mutated(rng.choice(self.examples), self.examples, self.tokens, rng)
        return self.finish(data) if self.finish is not None and rng.random() < 0.5 else data


def _encoded(image: Image.Image, form: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def _images() -> list[bytes]:
    rng = np.random.default_rng(0)
    smooth = rng.integers(0, 255, (4, 5, 3), np.uint8).repeat(8, 0).repeat(8, 1)
    colour, grey = Image.fromarray(smooth), Image.fromarray(smooth[..., 0])
    deep = Image.fromarray(rng.integers(0, 65535, (20, 24), np.uint16))
    exif = Image.Exif()
    exif[274] = 6
    pages = [colour.resize((20, 16)), colour.resize((10, 8))]
    return [
        _encoded(colour, "PNG"),
        _encoded(colour.convert("P"), "PNG", transparency=3),
        _encoded(colour.convert("RGBA"), "PNG"),
        _encoded(deep, "PNG"),
        _encoded(grey.convert("1"), "PNG"),
        _encoded(colour, "PNG", save_all=True, append_images=[colour.rotate(90)]),
        _encoded(colour, "JPEG", exif=exif),
        _encoded(grey, "JPEG", progressive=True),
        _encoded(colour.convert("CMYK"), "JPEG"),
        _encoded(colour, "TIFF"),
        _encoded(colour, "TIFF", compression="tiff_lzw"),
        _encoded(colour, "TIFF", compression="tiff_adobe_deflate", exif=exif),
        _encoded(colour, "TIFF", compression="jpeg"),
        _encoded(grey.convert("1"), "TIFF", compression="group4"),
        _encoded(deep, "TIFF"),
        _encoded(Image.fromarray(smooth[..., 0].astype(np.float32)), "TIFF"),
        _encoded(colour, "TIFF", save_all=True, append_images=pages),
        _encoded(colour, "BMP"),
        _encoded(colour.convert("P"), "BMP"),
        _encoded(colour, "WEBP", lossless=True),
        _encoded(colour, "WEBP", save_all=True, append_images=[colour.rotate(90)]),
        _encoded(colour, "GIF"),
        _encoded(colour, "PPM"),
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 40 32\n%%EndComments\nshowpage\n%%EOF\n",
    ]


def _read_image(path: Path) -> None:
    width, height = image_size(path)
    pixels = read_image(path)
    assert pixels.shape == (height, width, 3)
    assert pixels.dtype == np.uint8
    read_mask(path, (height, width))


_MANIFESTS = [
    b"image,label,mask,split,patient\nimages/1.png,benign,masks/1.png,train,a\nimages/2.png,malignant,,valid,b\n",
    b'image,label,split\r\na.png,0,train\r\n"b, c.png",1,test\r\n',
    "\ufeffimage,label,split,root\nA/é.tif,Tumör,train,../data\nB.tif,normal,test,../data\n".encode(),
]
_OUTLINES = [
    b'<?xml version="1.0"?><ASAP_Annotations><Annotations><Annotation Name="0" PartOfGroup="_0"><Coordinates>'
    b'<Coordinate Order="0" X="10" Y="10" /><Coordinate Order="1" X="900.5" Y="20" />'
    b'<Coordinate Order="2" X="500" Y="1e3" /><Coordinate Order="3" X="20" Y="700" /></Coordinates></Annotation>'
    b'<Annotation Name="1" PartOfGroup="_2"><Coordinates><Coordinate X="100" Y="100" /><Coordinate X="200" Y="100" />'
    b'<Coordinate X="100" Y="200" /></Coordinates></Annotation></Annotations></ASAP_Annotations>'
]


def _recipe(path: Path) -> None:
    load_config(str(path)).as_yaml()


def _ledger(path: Path) -> None:
    ledger = Ledger(path.parent, {"model": "m"})
    ledger.current(path, ("mask",))
    name = ledger.name_for(Path("/data/a.png"), "a")
    assert ".." not in Path(name).parts
    assert not Path(name).is_absolute()
    ledger.save([])


def _slide_state(path: Path) -> None:
    read_state(path.parent)
    save_slides([], path.parent.parent)


def _metrics(path: Path) -> None:
    read_metrics(path.parent)
    is_trained(path.parent, 2)
    training_seconds(path.parent)


class Models:
    """Damaged model folders: one file is damaged, the others are those of a valid model."""

    def __init__(self, folder: Path):
        self.folder = folder
        config = load_config("glas-sem", TINY)
        torch.manual_seed(0)
        method = build_method(config.method, build_backbone(config.backbone), 2, None)
        card = ModelCard(config, ["benign", "malignant"], 1, {"error": 0.5}, 0.5)
        state = {"optimizer": {"state": {}}, "random": torch.zeros(1, 8), "epochs": 1, "best_epoch": 1}
        save_model(folder, method, card, {**state, "best_score": 0.5})
        self.files = {path.name: path.read_bytes() for path in folder.iterdir()}

    def reading(self, name: str) -> Callable[[Path], None]:
        """A function that loads the model with one file replaced by the damaged one."""

        def read(path: Path) -> None:
            data = path.read_bytes()
            (self.folder / name).write_bytes(data)
            if name == "model.safetensors":  # with their hash on the card, else they are not looked at
                card = json.loads(self.files["model.json"]) | {"sha256": hashlib.sha256(data).hexdigest()}
                (self.folder / "model.json").write_bytes(_with_identity(json.dumps(card).encode()))
            try:
                load_model(find_model(self.folder))
                load_state(self.folder)
            finally:
                for each in (name, "model.json"):
                    (self.folder / each).write_bytes(self.files[each])

        return read


def _with_identity(card: bytes) -> bytes:
    """A card that was changed on purpose, so that its identity is right."""
    try:
        content = json.loads(card)
        content["identity"] = _digest(content)
        return json.dumps(content).encode()
    except (ValueError, TypeError, RecursionError):
        return card


def kinds(folder: Path) -> dict[str, Kind]:
    """All kinds of input; `folder` holds the valid model."""
    models = Models(folder / "model")
    record = {"image": "/data/a.png", "prediction": "benign", "mask": "masks/a.png"}
    source = {"path": "/data/a.png", "bytes": 10, "modified_ns": 5, "name": "a"}
    state = {"slide": "a.svs", "state": "done", "why": "", "seconds": 1.5, "record": {"slide": "a"}, "made_with": "[]"}
    plan = BenchmarkPlan(target="", methods=("sem",), seeds=(0, 1), recipe="folder", backbone=None, split="test")
    lines = [{"epoch": k, "seconds": 1.5, "lr": 0.001, "loss": {"total": 0.5}} for k in (1, 2)]
    tensors = {"a.weight": torch.ones(3, 2), "b": torch.zeros(4, dtype=torch.int64)}
    pth = io.BytesIO()
    torch.save({"state_dict": tensors}, pth)
    recipes = [recipe_text(name).encode() for name in ("glas-sem", "folder", "camelyon16-negev", "glas-unet")]
    recipes.append(load_config("glas-best").as_yaml().encode())
    words = (b"*a", b"&a ", b"!!python/object:os.system ", b"!!timestamp ", b"2001-99-99", b"0x", b": ", b"- ", b"<<: ")
    return {
        "images": Kind(
            "x.png", _images(), (b"IHDR", b"IDAT", b"acTL", b"\xff\xd8\xff", b"II*\0", b"RIFF"), _read_image
        ),
        "manifests": Kind(
            "manifest.csv",
            _MANIFESTS,
            (b",", b'"', b"\n", b"\0", b"../", b"/etc/", b"train", b"\xff\xfe"),
            read_manifest,
        ),
        "recipes": Kind("recipe.yaml", recipes, (*words, b"maxmin", b"1e400", b"[" * 3000, b"9" * 5000), _recipe),
        "outlines": Kind(
            "a.xml",
            _OUTLINES,
            (
                b"<!DOCTYPE a [<!ENTITY b 'c'>]>",
                b"&b;",
                b"<Annotation>",
                b"1e308",
                b"nan",
                b"-1",
                b"<a>" * 3000,
                b"]]>",
            ),
            lambda path: read_outlines(path, (2000, 2000)),
        ),
        "model cards": Kind(
            "model.json", [models.files["model.json"]], _JSON_WORDS, models.reading("model.json"), _with_identity
        ),
        "model weights": Kind(
            "model.safetensors",
            [models.files["model.safetensors"]],
            (struct.pack("<Q", 2**40), b'"shape":[', b'"F64"'),
            models.reading("model.safetensors"),
        ),
        "training states": Kind(
            "state.pt", [models.files["state.pt"]], (b"cos\nsystem\n", b"PK\x03\x04", b"R."), models.reading("state.pt")
        ),
        "initial weights": Kind(
            "w.safetensors",
            [safetensors.torch.save(tensors)],
            (b'"dtype"', b"F32", struct.pack("<Q", 2**40)),
            read_tensors,
        ),
        "pth files": Kind(
            "w.pth", [pth.getvalue()], (b"cos\nsystem\n", b"PK\x03\x04", b"R.", b"\x80\x04"), read_tensors
        ),
        "predictions": Kind(
            "predictions.json",
            [json.dumps({"model": "m", "images": [record], "failures": [], "sources": [source]}, indent=1).encode()],
            (*_JSON_WORDS, b"../../x", b"name", b"path"),
            _ledger,
        ),
        "slide states": Kind("state.json", [json.dumps(state, indent=1).encode()], _JSON_WORDS, _slide_state),
        "run logs": Kind(
            "metrics.jsonl", [b"".join(json.dumps(line).encode() + b"\n" for line in lines)], _JSON_WORDS, _metrics
        ),
        "plans": Kind(
            BenchmarkPlan.file,
            [plan.model_dump_json(indent=1).encode()],
            _JSON_WORDS,
            lambda path: read_plan(path.parent, BenchmarkPlan).jobs(),
        ),
    }
