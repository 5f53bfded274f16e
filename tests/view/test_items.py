import shutil

import pytest

from histolumen.errors import DataError
from histolumen.view.items import Library, find_items


def test_a_folder_with_a_manifest_gives_labels_splits_and_masks(pictures, tiny_manifest):
    items = list(find_items([pictures], []))
    assert [(item.name, item.label, item.split) for item in items] == [
        (row.image, row.label, row.split) for row in tiny_manifest.rows[:3]
    ]
    assert all(item.mask and item.mask.is_file() for item in items)


def test_a_folder_without_manifest_gives_images_and_the_masks_beside_them(tmp_path, tiny_manifest):
    row = tiny_manifest.rows[0]
    shutil.copy(tiny_manifest.image_path(row), tmp_path / "a.png")
    shutil.copy(tiny_manifest.image_path(row), tmp_path / "b.png")
    shutil.copy(tiny_manifest.mask_path(row), tmp_path / "a_mask.png")
    shutil.copy(tiny_manifest.mask_path(row), tmp_path / "b_corrected.png")
    items = {item.name: item for item in find_items([tmp_path], [])}
    assert set(items) == {"a.png", "b.png"}
    assert items["a.png"].mask == tmp_path / "a_mask.png"
    assert items["b.png"].mask is None  # a correction is not shown as truth


def test_identifiers_are_stable_and_tell_nothing_about_the_path(pictures):
    first, again = (list(find_items([pictures], [])) for _ in range(2))
    assert first == again
    assert len({item.id for item in first}) == 3
    assert all(item.path.stem not in item.id for item in first)


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_folders_without_images_or_slides_are_errors(tmp_path, name):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=name):
        list(find_items([tmp_path / name], []))
    with pytest.raises(DataError, match=name):
        list(find_items([], [tmp_path / name]))


def test_uploads_come_first_in_the_library(pictures):
    from dataclasses import replace

    library = Library(find_items([pictures], []))
    one = library.all()[0]
    library.add(replace(one, id="u1", kind="upload"))
    library.add(replace(one, id="u2", kind="upload"))
    assert [item.id for item in library.all()[:3]] == ["u2", "u1", one.id]
    library.remove("u2")
    assert library.get("u2") is None
