"""Processes and devices, by Lightning Fabric: one process, `torchrun`, several GPUs or nodes."""

import os

import torch
from lightning_fabric import Fabric

from histolumen.errors import ConfigError


def make_fabric(devices: str = "auto", nodes: int = 1) -> Fabric:
    """Set up (and, where asked for, start) the processes of a run.

    Args:
        devices: processes on this machine; "auto" is one, or what torchrun has started.
        nodes: machines.
    """
    if devices != "auto" and (not devices.isdecimal() or int(devices) < 1):
        raise ConfigError(f"--devices {devices}: give a number from 1 on, or auto")
    count = 1 if devices == "auto" else int(devices)
    if "WORLD_SIZE" in os.environ:  # torchrun has decided
        world = int(os.environ["WORLD_SIZE"])
        local = int(os.environ.get("LOCAL_WORLD_SIZE", world))
        if devices != "auto" and count != local:
            raise ConfigError(f"--devices {devices}: torchrun has started {local} processes here; leave --devices out")
        count, nodes = local, world // local
    gpus = torch.cuda.device_count()
    if gpus and count > gpus:
        raise ConfigError(f"--devices {count}: this machine has {gpus} GPU(s)")
    strategy = "ddp" if count * nodes > 1 else "auto"
    fabric = Fabric(accelerator="cuda" if gpus else "cpu", devices=count, num_nodes=nodes, strategy=strategy)
    fabric.launch()
    return fabric
