"""Slides on many machines: dask.distributed hands them out, and gives a lost worker's slide to another."""

import uuid
from collections.abc import Iterator, Sequence

from histolumen.errors import ConfigError
from histolumen.extras import require
from histolumen.slides.batch import SlideJob, SlideState, do_slide

_PATIENCE = "30s"


def do_slides_on_cluster(jobs: Sequence[SlideJob], address: str) -> Iterator[SlideState]:
    """Do slides on the workers of a dask scheduler, as they become free; yields states as they come in.

    Workers must see the slides, the run folder and the output folder under the same paths. A slide that a worker was
    lost over goes on, on another worker, with the tiles that were done.
    """
    require("cluster", "distributed")
    from distributed import Client, as_completed  # noqa: PLC0415 - an extra

    try:
        client = Client(address, timeout=_PATIENCE)
    except (OSError, ValueError) as error:
        raise ConfigError(f"--cluster {address}: no dask scheduler answers there ({error})") from error
    with client:
        futures = {
            # a key of its own: the scheduler may still hold what an interrupted call had asked for
            client.submit(do_slide, job, key=f"slide-{job.slide.stem}-{uuid.uuid4().hex}", pure=False): job
            for job in jobs
        }
        for future in as_completed(list(futures)):
            job = futures[future]
            try:
                yield future.result()
            except ConfigError:
                raise
            except Exception as error:  # noqa: BLE001 - workers lost again and again, or what one could not import
                yield SlideState(str(job.slide), "failed", f"{job.slide}: the cluster gave it up ({error})")
