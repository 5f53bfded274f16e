import pytest

from histolumen.config import load_config, recipe_names
from histolumen.errors import ConfigError
from histolumen.methods.base import method_names
from histolumen.report.rows import ROWS, find_rows


@pytest.mark.parametrize("target", ["glas", "camelyon16"])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_row_has_a_recipe_of_its_own_on_both_benchmarks(row, target):
    config = load_config(f"{target}-{row.name}")
    expected = "maxmin" if row.name in {"eem", "sem"} else row.name.replace("-", "_")
    assert config.method.name == expected


def test_every_method_has_a_row():
    assert {load_config(f"glas-{row.name}").method.name for row in ROWS} == set(method_names())


def test_all_shipped_recipes_are_valid():
    for name in recipe_names():
        load_config(name)


def test_the_papers_schedules():
    cam = load_config("glas-cam-avg").train
    assert (cam.epochs, cam.batch_size, cam.lr, cam.lr_milestones, cam.lr_factor) == (160, 32, 0.01, (80,), 0.1)
    pn = load_config("glas-pn").train
    assert (pn.epochs, pn.batch_size, pn.lr, pn.lr_every, pn.weight_decay) == (400, 8, 1e-3, 40, 1e-5)
    unet = load_config("glas-unet").train
    assert (unet.epochs, unet.batch_size, unet.lr, unet.lr_every, unet.lr_factor) == (960, 16, 0.1, 320, 0.1)
    sem = load_config("camelyon16-sem")
    assert (sem.method.t, sem.method.t_factor, sem.method.t_max) == (10, 1.1, 30)
    assert (sem.train.epochs, sem.train.batch_size, sem.train.head_lr_factor) == (20, 8, 10)


def test_rows_are_found_by_name_in_the_tables_order():
    assert [row.name for row in find_rows(["sem", "cam_avg"])] == ["cam-avg", "sem"]
    assert find_rows() == list(ROWS)
    with pytest.raises(ConfigError, match="did you mean 'cam-avg'"):
        find_rows(["cam-avgg"])
