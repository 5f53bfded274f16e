"""Write small synthetic slides for tests: tiled TIFF pyramids that OpenSlide reads."""

import itertools
import struct
import zlib
from pathlib import Path

import numpy as np
import pyvips

PINK, GLASS = (200, 110, 160), (242, 241, 243)


def write_slide(
    path: Path, pixels: "np.ndarray | pyvips.Image", mpp: float | None = 0.25, pyramid: bool = True
) -> Path:
    """Write RGB pixels losslessly as a tiled TIFF with plain IFDs.

    Args:
        path: of the slide; its folder must exist.
        pixels: [H, W, 3] uint8, or a vips image, which may be too large for memory.
        mpp: microns per pixel to store; None stores none.
        pyramid: whether to add levels, each half as large.
    """
    picture = pixels if isinstance(pixels, pyvips.Image) else pyvips.Image.new_from_array(pixels)
    picture = picture.copy(interpretation="srgb")
    resolution = 1000 / (mpp or 1)  # pixels per millimetre
    picture.tiffsave(
        str(path),
        tile=True,
        tile_width=256,
        tile_height=256,
        pyramid=pyramid,
        compression="deflate",
        level=1,
        bigtiff=True,
        xres=resolution,
        yres=resolution,
        resunit="cm",
    )
    if mpp is None:  # vips always stores a resolution: remove its unit
        entry = struct.Struct("<HHQQ")
        path.write_bytes(path.read_bytes().replace(entry.pack(296, 3, 1, 3), entry.pack(296, 3, 1, 1)))
    return path


def plain(width: int, height: int, colour: tuple[int, int, int] = PINK) -> pyvips.Image:
    """An image of one colour that needs no memory, whatever its size."""
    return (pyvips.Image.black(width, height, bands=3) + list(colour)).cast("uchar")


def write_mosaic_slide(path: Path, tiles: list[np.ndarray], layout: np.ndarray, mpp: float = 0.25) -> Path:
    """Write a slide of any size quickly: equal tiles of a level are stored once and referenced.

    Args:
        path: of the slide.
        tiles: square RGB images [T, T, 3] uint8, T a multiple of 16; few, because levels store every mixture of them.
        layout: tile index at each position [rows, columns]; levels are added while both sides can be halved.
        mpp: microns per pixel to store.
    """
    pictures, offsets = list(tiles), {}
    mixtures: dict[tuple[int, ...], int] = {}
    with path.open("wb") as file:
        file.write(struct.pack("<2sHI", b"II", 42, 0))
        link = 4  # where to write the offset of the next directory
        side = tiles[0].shape[0]
        for level in itertools.count():
            for number in set(layout.ravel().tolist()) - offsets.keys():
                packed = zlib.compress(pictures[number].tobytes(), 1)
                offsets[number] = (file.tell(), len(packed))
                file.write(packed + b"\0" * (len(packed) % 2))
            link = _write_directory(file, link, layout, offsets, side, level, mpp)
            if any(count % 2 for count in layout.shape):  # each level is exactly half the size
                break
            layout = _halved(layout, pictures, mixtures)
    return path


def _write_directory(file, link: int, layout: np.ndarray, offsets: dict, side: int, level: int, mpp: float) -> int:
    """Append the TIFF directory of one level; returns where to write the offset of the next one."""
    places = [offsets[number] for number in layout.ravel().tolist()]
    columns = {"offset": [place for place, _ in places], "length": [length for _, length in places]}
    at = {}
    for name, values in columns.items():
        at[name] = file.tell()
        file.write(struct.pack(f"<{len(values)}I", *values))
    at["bits"] = file.tell()
    file.write(struct.pack("<4H", 8, 8, 8, 0))
    at["resolution"] = file.tell()
    file.write(struct.pack("<2I", round(10_000 / (mpp * 2**level) * 1000), 1000))
    many = len(places)  # tags: 254 reduced level, 259 deflate, 296 per centimetre, 324 and 325 tile offsets
    entries = [
        (254, 4, 1, int(level > 0)),
        (256, 4, 1, layout.shape[1] * side), (257, 4, 1, layout.shape[0] * side), (258, 3, 3, at["bits"]),
        (259, 3, 1, 8), (262, 3, 1, 2), (277, 3, 1, 3), (282, 5, 1, at["resolution"]), (283, 5, 1, at["resolution"]),
        (284, 3, 1, 1), (296, 3, 1, 3), (322, 4, 1, side), (323, 4, 1, side),
        (324, 4, many, at["offset"] if many > 1 else places[0][0]),
        (325, 4, many, at["length"] if many > 1 else places[0][1]),
    ]  # fmt: skip
    start = file.tell()
    file.write(struct.pack("<H", len(entries)) + b"".join(struct.pack("<HHII", *entry) for entry in entries))
    next_link = file.tell()
    file.write(struct.pack("<I", 0))
    file.seek(link)
    file.write(struct.pack("<I", start))
    file.seek(0, 2)
    return next_link


def _halved(layout: np.ndarray, pictures: list[np.ndarray], mixtures: dict[tuple[int, ...], int]) -> np.ndarray:
    """The layout of the next level; adds its tiles, each downsampled from four, to `pictures`."""
    smaller = np.empty((layout.shape[0] // 2, layout.shape[1] // 2), int)
    for row, column in np.ndindex(smaller.shape):
        four = tuple(layout[2 * row : 2 * row + 2, 2 * column : 2 * column + 2].ravel().tolist())
        if four not in mixtures:
            upper, lower = (np.concatenate([pictures[k] for k in pair], axis=1) for pair in (four[:2], four[2:]))
            large = np.concatenate([upper, lower]).astype(np.uint16)
            mean = (large[::2, ::2] + large[1::2, ::2] + large[::2, 1::2] + large[1::2, 1::2] + 2) // 4
            pictures.append(mean.astype(np.uint8))
            mixtures[four] = len(pictures) - 1
        smaller[row, column] = mixtures[four]
    return smaller


def speckled(width: int, height: int, seed: int = 0) -> np.ndarray:
    """Stained tissue [H, W, 3] without repeated patches, made of flat squares that compress quickly."""
    noise = np.random.default_rng(seed).integers(-20, 21, (-(-height // 16), -(-width // 16), 1))
    blocks = (np.array(PINK) + noise).astype(np.uint8)
    return blocks.repeat(16, axis=0).repeat(16, axis=1)[:height, :width]
