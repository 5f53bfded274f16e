"""Proposed masks in training: the loss of masks that imitate them, and their update by the current masks."""

import torch
from torch import Tensor
from torch.nn import functional as F

from histolumen import losses
from histolumen.methods.base import Method, predict_flipped
from histolumen.proposals.images import Proposals, WholeImages


def proposal_loss(logits: Tensor, proposals: Tensor | None, negative: Tensor | None) -> Tensor:
    """Cross-entropy with the proposals; those of images without foreground are ignored."""
    if proposals is None:
        raise ValueError("method.grouping needs batches with proposals")
    if negative is not None:
        proposals = proposals.masked_fill(negative[:, None, None, None], 0.5)
    return losses.proposal_cross_entropy(logits, F.interpolate(proposals, size=logits.shape[2:], mode="area"))


def updated_proposals(method: Method, images: WholeImages, first: Proposals) -> Proposals:
    """New proposals of correctly classified images; the others keep their first ones."""
    was_training = method.training
    method.eval()
    proposals = [
        _updated_proposal(method, images[k], int(images.labels[k]), first[k])
        for k in images.track(range(len(first)), "updating the proposed masks")
    ]
    method.train(was_training)
    return proposals


@torch.no_grad()
def _updated_proposal(method: Method, image: Tensor, label: int, old: Tensor) -> Tensor:
    """The mean of the proposal and the current mask over all flips, if the predicted class is the label."""
    output = predict_flipped(method, image)
    if int(output.probs.argmax()) != label:
        return old
    size = [max(1, side // 4) for side in image.shape[2:]]
    mask = F.interpolate(output.soft_mask, size=size, mode="area")[0, 0].cpu()
    return (mask + F.interpolate(old[None, None], size=size, mode="bilinear", align_corners=False)[0, 0]) / 2
