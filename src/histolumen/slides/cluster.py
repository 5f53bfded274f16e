"""Slides on many machines: dask.distributed hands them out, and gives a lost worker's slide to another."""

from collections.abc import Iterator, Sequence

from histolumen.errors import ConfigError, HistolumenError
from histolumen.extras import require
from histolumen.slides.batch import SlideJob, SlideState, do_slide

_RETRIES = 3  # workers that may be lost over one slide before it is given up
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
            client.submit(do_slide, job, key=f"slide-{job.folder}", pure=False, retries=_RETRIES): job for job in jobs
        }
        for future in as_completed(list(futures)):
            job = futures[future]
            try:
                yield future.result()
            except HistolumenError:
                raise
            except Exception as error:  # noqa: BLE001 - lost workers, or what they could not import
                yield SlideState(str(job.slide), "failed", f"{job.slide}: the cluster gave it up ({error})")
