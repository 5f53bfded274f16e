"""Keys that earlier versions wrote, read as what they mean now."""

from typing import Any

from histolumen.errors import ConfigError

_DEFAULT = "normal"  # Max-Min's former default for `method.negative_class`


def read_former_keys(raw: dict[str, Any]) -> dict[str, Any]:
    """Plain values of a recipe with `method.negative_class`, which Max-Min and NEGEV had, as `images.negative_class`.

    Max-Min wrote it in every run, but it had a meaning only beside `negative_evidence`.
    """
    method, images = raw.get("method"), raw.get("images", {})
    if not isinstance(method, dict) or not isinstance(images, dict) or method.get("name") not in {"maxmin", "negev"}:
        return raw
    former = method.get("negative_class")
    if method["name"] == "maxmin":
        former = (former or images.get("negative_class") or _DEFAULT) if method.get("negative_evidence") else None
    method = {key: value for key, value in method.items() if key != "negative_class"}
    if former is None:
        return {**raw, "method": method}
    present = images.get("negative_class") or former
    if present != former:
        raise ConfigError(
            f"method.negative_class '{former}' and images.negative_class '{present}' differ; remove the former"
        )
    return {**raw, "method": method, "images": {**images, "negative_class": former}}


def read_former_run(raw: dict[str, Any]) -> dict[str, Any]:
    """Plain values of a run folder, which holds every key of the version that wrote it, so that old models predict as
    they did: ERASE with as many passes as in training, U-Net with a decoder that interpolates."""
    method = raw.get("method")
    if not isinstance(method, dict):
        return raw
    if method.get("name") == "erase" and "test_rounds" not in method and "rounds" in method:
        method = {**method, "test_rounds": method["rounds"]}
    if method.get("name") == "unet" and "upsampling" not in method:
        method = {**method, "upsampling": "bilinear"}
    return {**raw, "method": method}
