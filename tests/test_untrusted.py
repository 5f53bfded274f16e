"""Files are not trusted: nothing in the sources executes what a file says, and hostile files are refused."""

import ast
import pickle
from pathlib import Path

import pytest
import yaml
from PIL import Image

from histolumen.config import load_config
from histolumen.data.image import FORMATS, image_size, read_image
from histolumen.data.manifest import read_manifest
from histolumen.encoders.weights import read_tensors
from histolumen.engine.checkpoint import load_state
from histolumen.engine.earlier import Ledger
from histolumen.errors import ConfigError, DataError, HistolumenError, ImageError, RunError
from histolumen.export.files import save_json

SOURCES = sorted((Path(__file__).parents[1] / "src" / "histolumen").rglob("*.py"))
NEVER = {
    *("eval", "exec", "compile", "__import__", "os.system", "os.popen", "os.execv", "joblib.load", "torch.jit.load"),
    *("pickle.load", "pickle.loads", "pickle.Unpickler", "marshal.loads", "shelve.open", "yaml.unsafe_load"),
    *("yaml.full_load", "subprocess.run", "subprocess.Popen", "subprocess.call", "subprocess.check_output"),
    *("ElementTree.fromstring", "minidom.parse", "tarfile.open", "zipfile.ZipFile", "shutil.unpack_archive"),
}
NEVER_IMPORTED = {
    "pickle",
    "cPickle",
    "dill",
    "cloudpickle",
    "joblib",
    "marshal",
    "shelve",
    "xml",
    "lxml",
    "subprocess",
}


ALLOWED = {
    "in_background.py": ["subprocess.Popen", "import of subprocess"],  # this package itself, no argument from a file
    "runtimes.py": ["torch.jit.load"],  # an exported graph is a program; it has no pickles that run Python
}


def calls(tree: ast.AST):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), {word.arg: ast.unparse(word.value) for word in node.keywords}, node


def unsafe(source: str) -> list[str]:
    """What a source does that could execute a file's content."""
    tree, found = ast.parse(source), []
    for name, options, node in calls(tree):
        ending = ".".join(name.split(".")[-2:])
        if name in NEVER or ending in NEVER:
            found.append(name)
        if ending == "torch.load" and name != "safetensors.torch.load" and options.get("weights_only") != "True":
            found.append("torch.load without weights_only")
        if ending in {"np.load", "numpy.load"} and options.get("allow_pickle", "False") != "False":
            found.append("numpy.load with pickles")
        if ending == "yaml.load" and (len(node.args) < 2 or ast.unparse(node.args[1]) != "_Loader"):
            found.append("yaml.load without a safe loader")
        if ending == "Image.open" and options.get("formats") != "FORMATS":
            found.append("Image.open of any format")
        if ending == "ElementTree.parse" and options.get("forbid_dtd") != "True":
            found.append("XML with a document type")
        if options.get("shell", "False") != "False":
            found.append("a shell")
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        found += [f"import of {name}" for name in names if name.partition(".")[0] in NEVER_IMPORTED]
    return found


@pytest.mark.parametrize(
    "line",
    [
        "torch.load(path)", "torch.load(path, weights_only=False)", "np.load(path, allow_pickle=True)", "eval(text)",
        "yaml.load(text, yaml.Loader)", "import pickle", "from xml.etree import ElementTree", "Image.open(path)",
        "PIL.Image.open(path)", "os.system('ls')", "run('ls', shell=True)", "ElementTree.parse(path)",
    ],
)  # fmt: skip
def test_the_search_finds_unsafe_lines(line):
    assert unsafe(line)


def test_no_source_executes_what_a_file_says():
    assert len(SOURCES) > 100
    found = {path.name: lines for path in SOURCES if (lines := unsafe(path.read_text(encoding="utf-8")))}
    assert found == ALLOWED


class Malicious:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("name", ["w.pth", "w.safetensors", "w.bin", "state.pt"])
def test_a_malicious_pickle_is_not_executed(tmp_path, name):
    (tmp_path / name).write_bytes(pickle.dumps(Malicious(tmp_path / "executed")))
    with pytest.raises(HistolumenError, match=name):
        load_state(tmp_path) if name == "state.pt" else read_tensors(tmp_path / name)
    assert not (tmp_path / "executed").exists()
    pickle.loads((tmp_path / name).read_bytes())
    assert (tmp_path / "executed").exists(), "the pickle does nothing, so the test proves nothing"


@pytest.mark.parametrize("form", ["GIF", "PPM", "TGA", "PCX", "ICO", "EPS", "PDF", "JPEG2000"])
def test_formats_that_are_not_listed_are_refused_whatever_the_name_says(tmp_path, form):
    Image.new("RGB", (40, 32), (200, 100, 150)).save(tmp_path / "x.png", form)
    assert form not in FORMATS
    for read in (read_image, image_size):
        with pytest.raises(ImageError, match=r"x\.png: not an image"):
            read(tmp_path / "x.png")


def test_a_damaged_directory_of_a_tiff_is_refused(tmp_path):
    """Found by the fuzzer: Pillow raises TypeError for a page without width."""
    Image.new("RGB", (40, 32)).save(tmp_path / "x.tif", save_all=True, append_images=[Image.new("RGB", (20, 16))])
    data = bytearray((tmp_path / "x.tif").read_bytes())
    second = data.rindex(b"\x00\x01\x04\x00\x01\x00\x00\x00") if b"\x00\x01\x04\x00\x01\x00\x00\x00" in data else 0
    second = second or data.rindex(b"\x00\x01\x03\x00\x01\x00\x00\x00")
    data[second : second + 2] = b"\xff\x00"  # another tag
    (tmp_path / "x.tif").write_bytes(data)
    with pytest.raises(ImageError, match=r"x\.tif: cannot be read"):
        read_image(tmp_path / "x.tif")


def table(folder: Path, *rows: str, root: str = "") -> Path:
    columns = "image,label,mask,split" + (",root" if root else "")
    lines = [columns, *(row + (f",{root}" if root else "") for row in rows)]
    (folder / "manifest.csv").write_text("\n".join(lines) + "\n")
    return folder / "manifest.csv"


@pytest.mark.parametrize(
    "row",
    [
        "../../etc/passwd,a,,train", "/etc/passwd,a,,train", "images/../../x.png,a,,train", "x.png,a,../m.png,train",
        "x.png,a,/etc/passwd,train", "..,a,,train",
    ],
)  # fmt: skip
def test_paths_of_a_manifest_cannot_leave_its_root(tmp_path, row):
    with pytest.raises(DataError, match="lies outside the folder of the images"):
        read_manifest(table(tmp_path, row))


def test_a_root_that_is_asked_for_may_be_anywhere(tmp_path):
    row = f"{tmp_path}/images/x.png,a,,train"
    for manifest in (read_manifest(table(tmp_path, row), Path("/")), read_manifest(table(tmp_path, row, root="/"))):
        assert manifest.image_paths() == [tmp_path / "images" / "x.png"]
    inside = read_manifest(table(tmp_path, "a/../images/x.png,a,,train", root="../other"))
    assert inside.root == tmp_path / "../other"
    read_manifest(table(tmp_path, f"{tmp_path}/x.png,a,,train"))  # absolute, and inside


def test_blocks_repeated_by_reference_are_refused_and_do_not_grow(tmp_path):
    levels = "\n".join(f"  x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]" for n in range(1, 12))
    (tmp_path / "bomb.yaml").write_text(f"method:\n  x0: &x0 [1, 1]\n{levels}\n  name: *x11\n")
    with pytest.raises(ConfigError, match="not valid YAML"):
        load_config(str(tmp_path / "bomb.yaml"))


@pytest.mark.parametrize("value", ["2001-99-99", "9" * 5000, "[" * 1000, "{? [a] : 1}", "*a"])
def test_values_that_yaml_cannot_convert_are_refused(tmp_path, value):
    (tmp_path / "recipe.yaml").write_text(f"method: {{name: maxmin}}\nseed: {value}\n")
    with pytest.raises(ConfigError):
        load_config(str(tmp_path / "recipe.yaml"))
    with pytest.raises(ConfigError):
        load_config("glas-sem", [f"train.epochs={value}"])


def test_yaml_tags_are_not_executed(tmp_path):
    (tmp_path / "recipe.yaml").write_text(f"method: !!python/object/apply:os.mkdir ['{tmp_path}/executed']")
    with pytest.raises(ConfigError, match="not valid YAML"):
        load_config(str(tmp_path / "recipe.yaml"))
    assert not (tmp_path / "executed").exists()
    yaml.unsafe_load((tmp_path / "recipe.yaml").read_text())
    assert (tmp_path / "executed").exists(), "the tag does nothing, so the test proves nothing"


@pytest.mark.parametrize("name", ["../../x", "/tmp/x", 5, "a/../../x"])
def test_a_ledger_cannot_name_files_outside_its_folder(tmp_path, name):
    source = {"path": "/data/a.png", "bytes": 1, "modified_ns": 1, "name": name}
    content = {"model": "m", "images": [{"image": "/data/a.png"}], "sources": [source], "failures": []}
    save_json(content, tmp_path / "predictions.json")
    with pytest.raises(RunError):
        Ledger(tmp_path, {"model": "m"})
    source["name"] = "a"
    save_json(content, tmp_path / "predictions.json")
    assert Ledger(tmp_path, {"model": "m"}).name_for(Path("/data/a.png"), "b") == "a"
