"""torchvision's wheel with a CPU build of torch: missing operators are declared only if needed."""

import subprocess
import sys


def run(code: str) -> str:
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_timm_and_transforms_work_after_importing_vision():
    code = (
        "from histolumen.vision import timm, v2, tv_tensors; import torch;"
        "x = tv_tensors.Image(torch.zeros(3, 8, 8, dtype=torch.uint8));"
        "print(v2.RandomCrop(4)(x).shape, timm.create_model('test_resnet').num_classes)"
    )
    assert run(code) == "torch.Size([3, 4, 4]) 1000\n"


def test_operators_are_declared_exactly_if_the_plain_import_fails():
    plain = run("try:\n import torchvision; print('fine')\nexcept RuntimeError as e:\n print(e)")
    repaired = run("from histolumen import vision; print(vision.operators_declared)")
    assert (plain == "fine\n") == (repaired == "False\n")


def test_other_import_errors_are_not_hidden(tmp_path):
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").write_text("raise RuntimeError('something else')")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
    code += "try:\n import histolumen.vision\nexcept RuntimeError as e:\n print(e)"
    assert run(code) == "something else\n"


def test_the_compiler_is_imported_only_when_something_needs_it():
    code = (
        "import sys; from histolumen import vision; import torch\n"
        "print('torch._dynamo' in sys.modules)\n"
        "from torchvision.ops.roi_align import is_compile_supported\n"
        "print(is_compile_supported('cpu') == torch._dynamo.utils.is_compile_supported('cpu'))\n"
        "print(torch.compile(lambda x: x + 1, backend='eager')(torch.ones(1)).item())"
    )
    assert run(code) == "False\nTrue\n2.0\n"
