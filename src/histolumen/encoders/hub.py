"""Weights from the Hugging Face hub, with a quick error if it cannot be reached."""

from collections.abc import Iterator
from contextlib import contextmanager

from huggingface_hub import constants, get_session, try_to_load_from_cache
from huggingface_hub.errors import GatedRepoError
from torch import Tensor

from histolumen.encoders.weights import first_line
from histolumen.errors import HistolumenError, WeightsError
from histolumen.vision import timm

_TIMEOUT_SECONDS = 5  # for the first response of the hub
_FILES = ("model.safetensors", "pytorch_model.bin")


@contextmanager
def hub_errors_as_weights_error(name: str, repository: str | None, *, gated: bool = False) -> Iterator[None]:
    """Turn any error of the hub client within the block into one message that lists the alternatives.

    Args:
        name: name of the backbone.
        repository: its repository on the hub; None: unknown.
        gated: whether the owner of the repository has to grant access.
    """
    try:
        if repository is not None and not _cached(repository):
            _require_hub()  # the client itself retries for most of a minute
        yield
    except HistolumenError:
        raise
    except Exception as error:
        raise WeightsError(_message(name, repository, error, gated=gated)) from error


def hub_tensors(repository: str, file: str = "pytorch_model.bin") -> dict[str, Tensor]:
    """The tensors of a repository on the hub, as safetensors if it has them."""
    return dict(timm.models.load_state_dict_from_hf(repository, file))


def hub_repository(timm_name: str) -> str | None:
    """The hub repository of timm's published weights; None: there is none."""
    published = timm.get_pretrained_cfg(timm_name)
    return published.hf_hub_id if published else None


def is_cached(repository: str | None, file: str | None = None) -> bool:
    """Whether the weights of a repository are in the local cache."""
    return repository is not None and _cached(repository, file)


def _cached(repository: str, file: str | None = None) -> bool:
    names = _FILES if file is None else (*_FILES, file)
    return any(isinstance(try_to_load_from_cache(repository, name), str) for name in names)


def _require_hub() -> None:
    if constants.HF_HUB_OFFLINE:
        raise ConnectionError("HF_HUB_OFFLINE is set and there is no copy on this machine")
    get_session().head(constants.ENDPOINT, timeout=_TIMEOUT_SECONDS)


def _message(name: str, repository: str | None, error: Exception, *, gated: bool) -> str:
    reason = first_line(error)
    if gated or isinstance(error, GatedRepoError):
        return (
            f"backbone {name}: its weights are gated ({reason}); request access at {constants.ENDPOINT}/{repository} "
            "and log in with `hf auth login`, or give the downloaded file (--set backbone.weights=FILE)"
        )
    return (
        f"backbone {name}: no pre-trained weights within reach ({reason}). Three options: use efficientnet_lite0 (its "
        "weights come with a package), give a file (--set backbone.weights=FILE), or connect to the hub; "
        "--set backbone.weights=none trains from scratch"
    )
