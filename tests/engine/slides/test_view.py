import pytest
import torch
from gland_slides import SMALL_TILES

from histolumen.engine.model import load
from histolumen.engine.slides import predict
from histolumen.engine.slides.maps import tissue_at
from histolumen.engine.slides.view import SlideView
from histolumen.progress import SILENT
from histolumen.slides.reader import open_slide
from histolumen.tissue.mask import find_tissue


def test_tiles_are_normalised_like_images_and_glass_has_the_mean_colour(tmp_path, gland_slide, tiny_run):
    model = load(tiny_run)
    backbone = model.method.backbone
    with open_slide(gland_slide) as slide:
        tissue = find_tissue(slide, 16)
        tissue.mask[:] = True
        tissue.mask[:, : tissue.mask.shape[1] // 3] = False
        canvas = predict._canvas(model, slide, tissue, 0.5, tmp_path, SMALL_TILES, SILENT)
        layout, glass = canvas.layout, []
        with SlideView(canvas, model.method, remove_glass=True) as view:
            for tile in canvas.tiles:
                pixels = slide.read(layout.region(tile), (layout.tile, layout.tile), layout.scale)
                expected = backbone.normalise(torch.from_numpy(pixels).permute(2, 0, 1)[None].float() / 255)
                on_tissue = (tissue_at(canvas, tile, 2) > 0.5).repeat(2, 0).repeat(2, 1)
                glass.append(1 - on_tissue.mean())
                for _ in range(2):  # from the slide, then as kept
                    X, mask = view._prepare(tile, None, keep=True)
                    assert mask is None
                    assert torch.equal(X, expected * torch.from_numpy(on_tissue))
    assert min(glass) == 0
    assert max(glass) > 0.2


@pytest.mark.parametrize(("class_from", "kept"), [("foreground", True), ("image", False)])
def test_pixels_are_kept_only_for_a_second_pass(tmp_path, gland_slide, tiny_run, class_from, kept):
    model = load(tiny_run)
    model.method.settings = model.method.settings.model_copy(update={"class_from": class_from})
    with open_slide(gland_slide) as slide:
        canvas = predict._canvas(model, slide, find_tissue(slide, 16), 0.5, tmp_path, SMALL_TILES, SILENT)
        with SlideView(canvas, model.method) as view:
            view._prepare(canvas.tiles[0], None, keep=True)
            assert (view._kept.get(canvas.tiles[0], canvas.layout.tile) is not None) == kept
