"""Processes and devices through Lightning Fabric: one process, `torchrun`, several GPUs or nodes."""

import atexit
import os

import torch
from lightning_fabric import Fabric

from histolumen.errors import ConfigError
from histolumen.threads import divide_among


def make_fabric(devices: str = "auto", nodes: int = 1) -> Fabric:
    """Set up the processes of a run, and start them if there are several.

    Args:
        devices: number of processes on this machine; "auto": one, or the number that torchrun started.
        nodes: number of machines.
    """
    if devices != "auto" and (not devices.isdecimal() or int(devices) < 1):
        raise ConfigError(f"--devices {devices}: give a positive number or auto")
    count = 1 if devices == "auto" else int(devices)
    if "WORLD_SIZE" in os.environ:  # started by torchrun
        world = int(os.environ["WORLD_SIZE"])
        local = int(os.environ.get("LOCAL_WORLD_SIZE", world))
        if devices != "auto" and count != local:
            raise ConfigError(f"--devices {devices}: torchrun started {local} processes here; remove --devices")
        count, nodes = local, world // local
    gpus = torch.cuda.device_count()
    if gpus and count > gpus:
        raise ConfigError(f"--devices {count}: this machine has {gpus} GPU(s); give at most that many")
    if count > 1 and "WORLD_SIZE" not in os.environ:  # torchrun has decided it
        divide_among(count)
    strategy = "ddp" if count * nodes > 1 else "auto"
    fabric = Fabric(accelerator="cuda" if gpus else "cpu", devices=count, num_nodes=nodes, strategy=strategy)
    fabric.launch()
    if torch.distributed.is_initialized():  # else its threads may abort the process while it exits
        atexit.register(torch.distributed.destroy_process_group)
    return fabric


def is_main_process() -> bool:
    """Whether this process reports progress and writes files."""
    return not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0
