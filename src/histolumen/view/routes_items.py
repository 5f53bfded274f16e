"""Routes of the items: list, geometry, tiles, truth, corrections."""

from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from PIL import Image
from starlette.responses import Response

from histolumen.data.image import read_mask
from histolumen.export.geojson import GeoJsonStyle
from histolumen.view.corrections import save_correction
from histolumen.view.items import Item, named
from histolumen.view.predictions import LoadedRun
from histolumen.view.problems import refusals
from histolumen.view.schema import Badge, ItemDetail, Items, ItemSummary, RunInfo, Saved
from histolumen.view.server import (
    BINARY,
    GEOJSON,
    KEEP_AN_HOUR,
    Viewer,
    content,
    file_response,
    jpeg,
    png_response,
    viewer_of,
)
from histolumen.view.tiles import TILE

router = APIRouter(prefix="/api", tags=["items"])
Served = Annotated[Viewer, Depends(viewer_of)]
MASK_SIDE = 2048  # longest side of the masks sent to the browser
_THUMBNAIL = 256
_REFUSALS = refusals(404, 422)
_JPEG = content("image/jpeg") | _REFUSALS
_PNG = content("image/png") | _REFUSALS
_GEOJSON = content(GEOJSON) | _REFUSALS
_PNG_BODY = {"requestBody": {"required": True, "content": {"image/png": {"schema": BINARY}}}}


@router.get("/items", responses=refusals())
def items(viewer: Served) -> Items:
    """All images and slides with their predictions so far, and the loaded runs."""
    predicted, to_predict = viewer.predictor.counts()
    return Items(
        items=[ItemSummary(**_summary(viewer, item)) for item in viewer.library.all()],
        runs=[_run_info(run) for run in viewer.predictor.runs.values()],
        predicted=predicted,
        to_predict=to_predict,
    )


@router.get("/items/{item_id}", responses=refusals(404, 422))
def item_detail(viewer: Served, item_id: str) -> ItemDetail:
    """One item with its size, resolution and deep zoom levels."""
    item = viewer.item(item_id)
    geometry = viewer.geometry(item)
    return ItemDetail(
        **_summary(viewer, item),
        width=geometry.width,
        height=geometry.height,
        mpp=geometry.mpp,
        tile=TILE,
        min_level=geometry.min_level,
        max_level=geometry.max_level,
        has_truth=item.mask is not None,
    )


@router.get("/items/{item_id}/thumbnail.jpg", response_class=Response, responses=_JPEG)
def thumbnail(viewer: Served, item_id: str) -> Response:
    """A small picture of an item."""
    item = viewer.item(item_id)
    content = viewer.thumbnails.get_or_make(item.id, lambda: jpeg(np.asarray(viewer.tiles.reduced(item, _THUMBNAIL))))
    return Response(content, media_type="image/jpeg", headers=KEEP_AN_HOUR)


@router.get("/items/{item_id}/tiles/{level}/{column}_{row}.jpg", response_class=Response, responses=_JPEG)
def tile(viewer: Served, item_id: str, level: int, column: int, row: int) -> Response:
    """A deep zoom tile."""
    pixels = viewer.tiles.tile(viewer.item(item_id), level, column, row)
    if pixels is None:
        raise HTTPException(404, "no such tile")
    return Response(jpeg(pixels), media_type="image/jpeg", headers=KEEP_AN_HOUR)


@router.get("/items/{item_id}/truth.png", response_class=Response, responses=_PNG)
def truth(viewer: Served, item_id: str) -> Response:
    """The true mask, 0 or 255, with a longest side of at most 2048 pixels."""
    item = viewer.item(item_id)
    if item.mask is None:
        raise HTTPException(404, f"{item.name}: has no true mask")
    geometry = viewer.geometry(item)
    with named(item):
        return png_response(reduced_mask(read_mask(item.mask, (geometry.height, geometry.width))))


@router.get("/items/{item_id}/correction.png", response_class=Response, responses=_PNG)
def correction_mask(viewer: Served, item_id: str) -> Response:
    """The corrected mask that was saved."""
    return _correction(viewer.item(item_id), ".png", "image/png")


@router.get("/items/{item_id}/correction.geojson", response_class=Response, responses=_GEOJSON)
def correction_regions(viewer: Served, item_id: str) -> Response:
    """The regions of the corrected mask that was saved."""
    return _correction(viewer.item(item_id), ".geojson", GEOJSON)


@router.delete("/items/{item_id}", status_code=204, responses=refusals(403, 404, 409, 422))
def delete_upload(viewer: Served, item_id: str) -> None:
    """Delete an image that was sent to the viewer; the user's own images and slides are never deleted."""
    item = viewer.item(item_id)
    if item.kind != "upload":
        raise HTTPException(409, "only images that were added to the viewer can be deleted")
    viewer.uploads.discard(item)
    viewer.forget(item)


@router.put("/items/{item_id}/correction", openapi_extra=_PNG_BODY, responses=refusals(400, 403, 404, 408, 413, 422))
async def save(viewer: Served, request: Request, item_id: str, run: str = "") -> Saved:
    """Save a corrected mask (a PNG; non-zero pixels are foreground) beside the image, also as GeoJSON."""
    item = viewer.item(item_id)
    geometry = await run_in_threadpool(viewer.geometry, item)
    style = GeoJsonStyle("foreground", ("foreground",), item.path.stem, origin=geometry.origin, mpp=geometry.mpp)
    if run:
        mask = viewer.predictor.mask(item, viewer.run(run))
        style = style if mask is None else mask.style
    async with viewer.uploads.received(request) as path:

        def decode_and_save() -> list[str]:
            drawn = viewer.uploads.decode(path, "mask")[..., 0] > 0
            with named(item):
                files = save_correction(item, geometry, drawn, style)
            viewer.library.mark_corrected(item)
            return files

        return Saved(files=await run_in_threadpool(decode_and_save))


def reduced_mask(mask: np.ndarray) -> Image.Image:
    """A mask as an 8-bit picture, reduced to at most `MASK_SIDE` pixels."""
    values = np.where(mask, 255, 0).astype(np.uint8) if mask.dtype == bool else mask
    picture = Image.fromarray(values)
    picture.thumbnail((MASK_SIDE, MASK_SIDE), Image.Resampling.BOX)
    return picture


def _correction(item: Item, suffix: str, kind: str) -> Response:
    path = item.correction(suffix)
    if not path.is_file():
        raise HTTPException(404, f"{item.name}: has no saved correction")
    return file_response(path.read_bytes(), kind, path.name)


def _summary(viewer: Viewer, item: Item) -> dict[str, Any]:
    results = {run.id: viewer.predictor.result(item, run) for run in viewer.predictor.runs.values()}
    failures = (viewer.predictor.failure(item, run) for run in viewer.predictor.runs.values())
    return {
        "id": item.id,
        "kind": item.kind,
        "name": item.name,
        "label": item.label,
        "split": item.split,
        "corrected": viewer.library.is_corrected(item),
        "predictions": {
            run: Badge(
                label=result.label,
                probability=result.probabilities.get(result.label),
                foreground_share=result.record["foreground_share"],
                unlike_training=result.unlike_training,
                warnings=list(result.warnings),
            )
            for run, result in results.items()
            if result is not None
        },
        "failure": next((failure for failure in failures if failure), None),
    }


def _run_info(run: LoadedRun) -> RunInfo:
    config = run.model.config
    return RunInfo(
        id=run.id,
        name=run.name,
        method=config.method.name,
        backbone=config.backbone.name,
        classes=run.model.classes,
        classifies=run.model.classifies,
        negative_class=config.images.negative_class,
        mean_colour=run.mean_colour,
    )
