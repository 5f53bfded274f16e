"""Routes of the predictions: start and follow them, download masks, send new images."""

import asyncio
import json
from base64 import b64encode
from typing import Annotated

import numpy as np
from fastapi import APIRouter, HTTPException, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from PIL import Image
from starlette.requests import ClientDisconnect

from histolumen.engine.prediction import Prediction, png_bytes
from histolumen.export.geojson import feature_collection
from histolumen.export.overlay import draw_overlay
from histolumen.view.predictions import Result, SoftMask, unforeseen_errors
from histolumen.view.problems import refusals
from histolumen.view.rates import scope_client
from histolumen.view.routes_items import Served, reduced_mask
from histolumen.view.schema import ItemSummary, Predicted, PredictionState
from histolumen.view.server import BINARY, GEOJSON, Viewer, content, file_response, png_response
from histolumen.view.uploads import display_name
from histolumen.view.worker import Job, QueueFullError

router = APIRouter(prefix="/api", tags=["predictions"])
Threshold = Annotated[float, Query(gt=0, lt=1, description="pixels of the soft mask from this value on are foreground")]
_LONG_POLL_SECONDS = 1.0
_RETRY_SECONDS = 30  # after a prediction that took too long: a slide probably occupies the network
_OVERLAY_SIDE = 4096  # longest side of the overlay of a slide
_IMAGE_BODY = {"requestBody": {"required": True, "content": {"image/*": {"schema": BINARY}}}}
_UPLOAD_REFUSALS = refusals(400, 403, 408, 413, 422)
_MASK_REFUSALS = refusals(404, 409, 422)
_PNG = content("image/png") | _MASK_REFUSALS


@router.post(
    "/items/{item_id}/predictions/{run_id}",
    responses={202: {"model": PredictionState, "description": "not done yet"}} | refusals(403, 404, 422),
)
async def predict_item(
    viewer: Served, request: Request, response: Response, item_id: str, run_id: str, retry: bool = False
) -> PredictionState:
    """Predict an item, or follow its prediction: 200 with the result, or 202 with the progress after a second.

    A prediction that failed is not repeated unless `retry` is set.
    """
    item, run = viewer.item(item_id), viewer.run(run_id)
    if retry:
        viewer.predictor.retry(item)
    if (failure := viewer.predictor.failure(item, run)) is not None:
        raise HTTPException(422, failure)
    job = viewer.predictor.request(item, run, scope_client(request.scope))
    if job is not None:
        if not await job.wait(_LONG_POLL_SECONDS):
            response.status_code = 202
            before = viewer.predictor.worker.position(job)
            state = "waiting" if before else "running"
            return PredictionState(state=state, activity=job.activity, done=job.done, total=job.total, before=before)
        return _done(job.future.result())
    result = viewer.predictor.result(item, run)
    if result is None:
        raise HTTPException(404, "the image was removed")
    return _done(result)


@router.get("/items/{item_id}/predictions/{run_id}/soft_mask.png", response_class=Response, responses=_PNG)
def soft_mask(viewer: Served, item_id: str, run_id: str) -> Response:
    """The soft mask, 255 is 1, with a longest side of at most 2048 pixels."""
    return png_response(reduced_mask(_mask(viewer, item_id, run_id).as_bytes()))


@router.get("/items/{item_id}/predictions/{run_id}/mask.png", response_class=Response, responses=_PNG)
def mask(viewer: Served, item_id: str, run_id: str, threshold: Threshold = 0.5) -> Response:
    """The binary mask, 0 or 255, at the size of the image; for slides one pixel per cell of the heat map."""
    binary = _mask(viewer, item_id, run_id).binary(threshold)
    picture = Image.fromarray(np.where(binary, 255, 0).astype(np.uint8))
    return png_response(picture, f"{viewer.item(item_id).path.stem}_mask.png")


@router.get("/items/{item_id}/predictions/{run_id}/overlay.png", response_class=Response, responses=_PNG)
def overlay(viewer: Served, item_id: str, run_id: str, threshold: Threshold = 0.5) -> Response:
    """The image with the mask outlined and the rest dimmed."""
    item, binary = viewer.item(item_id), _mask(viewer, item_id, run_id).binary(threshold)
    if item.kind == "slide":
        pixels = np.asarray(viewer.tiles.reduced(item, _OVERLAY_SIDE))
        size = pixels.shape[1], pixels.shape[0]
        binary = np.asarray(Image.fromarray(binary).resize(size, Image.Resampling.NEAREST))
    else:
        pixels = viewer.tiles.pixels(item)
    return png_response(draw_overlay(pixels, binary), f"{item.path.stem}_overlay.png")


@router.get(
    "/items/{item_id}/predictions/{run_id}/regions.geojson",
    response_class=Response,
    responses=content(GEOJSON) | _MASK_REFUSALS,
)
def regions(viewer: Served, item_id: str, run_id: str, threshold: Threshold = 0.5) -> Response:
    """The regions of the mask as GeoJSON in pixels of the image or slide, for QuPath."""
    found = _mask(viewer, item_id, run_id)
    text = json.dumps(feature_collection(found.regions(threshold), found.style))
    return file_response(text.encode(), GEOJSON, f"{viewer.item(item_id).path.stem}.geojson")


@router.post("/uploads", status_code=201, openapi_extra=_IMAGE_BODY, responses=_UPLOAD_REFUSALS)
async def upload(viewer: Served, request: Request, name: str = "image") -> ItemSummary:
    """Add an image (the body of the request) to the list until newer ones replace it or the viewer ends."""
    viewer.predictor.worker.check_room(scope_client(request.scope))
    async with viewer.uploads.received(request) as path:
        item, dropped = await run_in_threadpool(viewer.uploads.keep, path, display_name(name))
    for old in dropped:
        viewer.forget(old)
    return ItemSummary(id=item.id, kind=item.kind, name=item.name, label="", split="", corrected=False, predictions={})


@router.post("/predict", openapi_extra=_IMAGE_BODY, responses=_UPLOAD_REFUSALS | refusals(404))
async def predict(viewer: Served, request: Request, run: str = "0", mask: bool = False) -> Predicted:
    """Predict an image (the body of the request) as `histolumen predict` does; nothing is kept."""
    loaded, worker, client = viewer.run(run), viewer.predictor.worker, scope_client(request.scope)
    worker.check_room(client)
    async with viewer.uploads.received(request) as path:

        def work(_: object) -> Prediction:
            with unforeseen_errors("image"):
                return loaded.model.predict(viewer.uploads.decode(path, "image"))

        job = worker.submit(work, client)
        try:
            prediction = await _result_for(request, job, viewer.settings.limits.predict_seconds)
        finally:
            worker.withdraw(job)
    return await run_in_threadpool(_predicted, prediction, mask)


async def _result_for(request: Request, job: Job, seconds: float) -> Prediction:
    """Wait for a prediction as long as the client does, and not longer than `seconds`."""
    done = asyncio.ensure_future(job.wait(seconds))
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait([done, gone], return_when=asyncio.FIRST_COMPLETED)
    finally:
        done.cancel()
        gone.cancel()
    if job.future.done():
        return job.future.result()
    raise ClientDisconnect if gone.done() else QueueFullError(_RETRY_SECONDS)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _predicted(prediction: Prediction, with_mask: bool) -> Predicted:
    encoded = None
    if with_mask:
        picture = Image.fromarray(np.where(prediction.mask, 255, 0).astype(np.uint8))
        encoded = b64encode(png_bytes(picture)).decode()
    return Predicted(record=prediction.record(), mask_png=encoded)


def _mask(viewer: Viewer, item_id: str, run_id: str) -> SoftMask:
    found = viewer.predictor.mask(viewer.item(item_id), viewer.run(run_id))
    if found is None:
        raise HTTPException(
            409, f"not predicted yet, or no longer in memory: POST /api/items/{item_id}/predictions/{run_id}"
        )
    return found


def _done(result: Result) -> PredictionState:
    regions = result.regions
    return PredictionState(
        state="done",
        record=result.record,
        label=result.label,
        probabilities=result.probabilities,
        on_foreground=None if regions is None else regions.plus,
        on_background=None if regions is None else regions.minus,
        unlike_training=result.unlike_training,
        warnings=list(result.warnings),
    )
