"""Processes and devices, by Lightning Fabric: one process, `torchrun`, several GPUs or nodes."""

import os

import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies.ddp import DDPStrategy

from histolumen.errors import ConfigError


def make_fabric(devices: str = "auto", nodes: int = 1) -> Fabric:
    """Set up (and, where asked for, start) the processes of a run.

    Args:
        devices: processes on this machine; "auto" is every GPU, or one process on a CPU.
        nodes: machines.
    """
    count: int | str = "auto"
    if devices != "auto":
        if not devices.isdecimal() or int(devices) < 1:
            raise ConfigError(f"--devices {devices}: give a number from 1 on, or auto")
        count = int(devices)
    elif "WORLD_SIZE" in os.environ:  # torchrun has decided
        count = int(os.environ.get("LOCAL_WORLD_SIZE", os.environ["WORLD_SIZE"]))
    elif not torch.cuda.is_available():
        count = 1
    processes = nodes * (torch.cuda.device_count() if count == "auto" else int(count))
    # a method whose terms are switched off leaves a head without gradient
    strategy = DDPStrategy(find_unused_parameters=True) if processes > 1 else "auto"
    accelerator = "cuda" if torch.cuda.is_available() else "cpu"
    fabric = Fabric(accelerator=accelerator, devices=count, num_nodes=nodes, strategy=strategy)
    fabric.launch()
    return fabric
