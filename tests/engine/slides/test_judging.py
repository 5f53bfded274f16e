import numpy as np
from gland_slides import SMALL_TILES

from histolumen.engine.model import load
from histolumen.engine.slides import judging, predict
from histolumen.progress import SILENT
from histolumen.slides.reader import open_slide
from histolumen.tissue.mask import find_tissue


def test_fields_prepared_by_threads_are_judged_like_images_in_their_order(tmp_path, gland_slide, tiny_run):
    model = load(tiny_run)
    reference, backbone = model.reference, model.predictor.backbone
    assert reference is not None
    height, width = reference.size
    with open_slide(gland_slide) as slide:
        canvas = predict._canvas(model, slide, find_tissue(slide, 16), 1.0, tmp_path, SMALL_TILES, SILENT)
        judged = judging.judge_slide(reference, backbone, canvas)
        assert judged is not None
        assert len(judged.centres) > 2
        for (x, y), unlike in zip(judged.centres, judged.unlike, strict=True):
            pixels = slide.read(judging.Region(x - width / 2, y - height / 2, width, height), (width, height), 1.0)
            assert np.isclose(unlike, reference.unlike(reference.describe(backbone, pixels)))
    assert len(np.unique(judged.unlike)) > 1


def test_a_quarter_of_many_fields_is_judged(gland_slide, monkeypatch):
    counts = []
    monkeypatch.setattr(judging, "spread", lambda fields, count: counts.append((len(fields), count)) or fields)
    with open_slide(gland_slide) as slide:
        tissue = find_tissue(slide, 16)
        for side in (4000, 40, 20, 8):
            judging._fields(slide, tissue, side, side)
    assert counts[0] == (1, 16)
    assert all(count == min(max(16, round(fields / 4)), 64) for fields, count in counts)
    assert counts[-1][1] == 64
