"""Prediction of slides on a dask cluster."""

from collections.abc import Iterator, Sequence

from histolumen.engine.slides.batch import SlideJob, SlideState, do_slide
from histolumen.engine.workers import connect, run_on_workers
from histolumen.errors import ConfigError


def do_slides_on_cluster(jobs: Sequence[SlideJob], address: str) -> Iterator[SlideState]:
    """Predict slides on the workers of a dask scheduler and yield each state when it is ready.

    Workers must see the slides, the run folder and the output folder under the same paths. The slide of a lost worker
    is resumed by another one, which keeps the finished tiles.
    """
    with connect(address) as client:
        for job, result in run_on_workers(client, do_slide, jobs):
            if isinstance(result, ConfigError):  # concerns every slide
                raise result
            if isinstance(result, Exception):  # too many workers lost, or an import error on a worker
                yield SlideState(str(job.slide), "failed", f"{job.slide}: failed on the cluster ({result})")
            else:
                yield result
