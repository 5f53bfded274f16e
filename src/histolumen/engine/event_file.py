"""Training curves for TensorBoard, written by this process itself.

The writer of torch has a thread of its own: on a full disk it prints a traceback and stops, and the run learns of it an
epoch later, or never.
"""

import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event, SessionLog  # pyright: ignore[reportAttributeAccessIssue] - generated
from tensorboard.compat.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]
from tensorboard.summary.writer.record_writer import RecordWriter

from histolumen.atomic import os_errors_as_disk_error


class EventFile:
    """Appends to a new events file of a run folder."""

    def __init__(self, folder: Path, first_epoch: int):
        self.path = folder / f"events.out.tfevents.{time.time_ns()}.{socket.gethostname()}.{os.getpid()}"
        start = SessionLog(status=SessionLog.START)  # epochs from here on replace those of earlier files
        self._append(
            Event(wall_time=time.time(), step=first_epoch, file_version="brain.Event:2"),
            Event(wall_time=time.time(), step=first_epoch, session_log=start),
        )

    def write(self, scalars: Mapping[str, float], epoch: int) -> None:
        """Add the values of one epoch."""
        values = [Summary.Value(tag=name, simple_value=value) for name, value in scalars.items()]
        self._append(Event(wall_time=time.time(), step=epoch, summary=Summary(value=values)))

    def _append(self, *events: Event) -> None:
        with os_errors_as_disk_error(self.path), self.path.open("ab") as file:
            for event in events:
                RecordWriter(file).write(event.SerializeToString())
