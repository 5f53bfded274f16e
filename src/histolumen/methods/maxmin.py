"""Max-Min uncertainty (Belharbi et al.): foreground is where the classifier is sure, background where it cannot tell.

A localizer and a classifier share one backbone. The localizer's winning class map becomes the mask M+ (Eq. 8); the
classifier must know the class of X+ = X * M+ (Eq. 1-1) and nothing about X- = X * (1 - M+) (Eq. 6 or 7), while a
barrier keeps both regions large (Eq. 5).

Beyond the paper, and off unless asked for (docs/method.md): the mask may come from a decoder with logits of its own, be
taught by the tissue's natural groups (`grouping`), renew these proposals by its own answers (`self_training`),
follow colours (`edges`), and stay empty on images of a class that has no foreground (`negative_evidence`).
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from histolumen import losses
from histolumen.errors import ConfigError, nearest
from histolumen.methods.base import (
    Batch,
    Examples,
    Losses,
    MapRunner,
    Method,
    Output,
    Proposals,
    SlideMapper,
    SlideMask,
    SlideOutput,
    at_once,
    predict_flipped,
    register,
)
from histolumen.methods.class_maps import stretched
from histolumen.methods.maxmin_settings import MaxMinSettings
from histolumen.methods.proposals import group_images
from histolumen.nets.backbones import Backbone
from histolumen.nets.batchnorm import Case
from histolumen.nets.geometry import Grid, enlarge, min_max
from histolumen.nets.pooling import WildcatHead
from histolumen.nets.pyramid import PyramidDecoder


def mask_logits(
    class_maps: Tensor,
    probs: Tensor,
    size: tuple[int, int],
    sigma: Tensor | float | None,
    omega: float,
    grid: Grid | None = None,
) -> Tensor:
    """Eq. 8 before its sigmoid: logits of M+ from the localizer's class maps.

    The winning map is made differentiable as the sum of the class maps weighted by the localizer's own probabilities,
    enlarged to the image, and normalised to [0, 1] **per image**, so that sigma means the same for each of them.
    So stretched, no map is empty: without sigma it is taken as it is, positive where it speaks for its class.
    """
    winning = enlarge((class_maps * probs[:, :, None, None]).sum(1, keepdim=True), size, grid)
    return omega * (winning if sigma is None else min_max(winning) - sigma)


@register(MaxMinSettings)
class MaxMin(Method):
    """Algorithm 1 of the paper."""

    t: Tensor
    sigma: Tensor
    negative_class: Tensor | None

    def __init__(self, settings: MaxMinSettings, backbone: Backbone, classes: int):
        super().__init__()
        self.settings = settings
        self.backbone = backbone
        self.localizer = self._head(classes)
        # without X+ and X- it has nothing to judge, and its weights would never get a gradient
        self.classifier = self._head(classes) if self._regions() else None
        self.decoder: PyramidDecoder | None = None
        if settings.mask_from == "decoder":
            self.decoder = PyramidDecoder(backbone, settings.decoder_stride, settings.decoder_width)
        self.register_buffer("t", torch.tensor(settings.t))
        self.register_buffer("sigma", torch.tensor(settings.sigma))
        # an index, as the mask of a loaded model depends on it; -1 until `begin` tells, None where it plays no part
        self.register_buffer("negative_class", torch.tensor(-1) if settings.negative_evidence else None)

    def begin(self, epochs: int, classes: Sequence[str]) -> None:  # noqa: ARG002 - its schedules go by the epoch
        if self.negative_class is None:
            return
        name = self.settings.negative_class
        if name not in classes:
            raise ConfigError(f"method.negative_class: no class '{name}'; {nearest(name, classes)}")
        self.negative_class.fill_(list(classes).index(name))

    def losses(self, batch: Batch) -> Losses:
        s = self.settings
        X = self.backbone.normalise(batch.images)
        features, inner = self._features(X)  # forward X into M
        maps = self.localizer.maps(features)
        scores = self.localizer.scores(maps)
        terms = {"localizer": losses.cross_entropy(scores, batch.labels)}
        negative = None if self.negative_class is None else batch.labels == self.negative_class
        if self.decoder is None:
            logits = self._cam_logits(maps, scores, X)
            foreground = torch.sigmoid(logits)  # M+; M- is its complement
        else:
            logits = self.decoder(features, inner)
            foreground = self.decoder.mask(logits, *X.shape[2:])
            if s.grouping:
                terms["grouping"] = s.grouping * _following(logits, batch.proposals, negative)
        if negative is not None:
            terms["negative_evidence"] = s.negative_evidence * losses.negative_evidence(logits, negative)
        if s.edges:
            terms["edges"] = s.edges * losses.edge_consistency(foreground, batch.images)
        if s.size_barrier:
            terms["size"] = losses.size_barrier(foreground, self.t, s.size_unit, negative)
        if self.classifier is not None:
            on_plus, on_minus = self._classify_regions(self.classifier, X, foreground)  # forward X+, X- into C
            if on_plus is not None:
                scores = on_plus
                terms["foreground"] = losses.cross_entropy(on_plus, batch.labels)
            if on_minus is not None and s.background != "none":
                terms["background"] = s.lambda_ * losses.background_uncertainty(on_minus, s.background)
        return Losses(terms, scores)

    def predict(self, images: Tensor, run: MapRunner = at_once) -> Output:
        X = self.backbone.normalise(images)
        decoder, classifier = self.decoder, self.classifier
        if decoder is None:
            located = self._localize(X, run)
            foreground = torch.sigmoid(self._cam_logits(*located, X))
        else:
            located = None
            foreground = decoder.mask(run(lambda x: decoder(*self._features(x)), X), *X.shape[2:])
        if classifier is not None and self.settings.foreground:  # X- is never computed here
            X_plus = self._shrink(X * foreground)
            scores = classifier.scores(run(lambda x: classifier.maps(self.backbone(x, Case.FOREGROUND)), X_plus))
        else:
            _, scores = located or self._localize(X, run)
        return Output(probs=scores.softmax(1), mask=foreground)

    def predict_slide(self, slide: SlideMapper) -> SlideOutput:
        """As `predict`: the maps of all tissue first, then the mask, then the classifier on X+."""
        normalise, classifier = self.backbone.normalise, self.classifier
        mask, scores = self._slide_mask(slide)
        if classifier is not None and self.settings.foreground:
            grid, scale = self.backbone.grid, self.settings.classifier_scale
            on_plus = slide.positions(
                lambda tile, soft: classifier.maps(
                    self.backbone(self._shrink(normalise(tile) * soft), Case.FOREGROUND)
                ),
                Grid(grid.stride / scale, grid.offset / scale),
                mask,
            )
            scores = classifier.scores(on_plus)
        elif scores is None:
            scores = self.localizer.scores(slide.positions(self._slide_localizer, self.backbone.grid))
        return SlideOutput(scores.softmax(1), mask)

    def _slide_mask(self, slide: SlideMapper) -> tuple[SlideMask, Tensor | None]:
        """M+ of a slide, and the localizer's scores if they were needed for it."""
        decoder, normalise = self.decoder, self.backbone.normalise
        if decoder is not None:
            grid = Grid(decoder.stride, (decoder.stride - 1) / 2)
            maps = slide.maps(lambda tile, _: decoder(*self._features(normalise(tile))), grid)
            return SlideMask(maps, torch.sigmoid), None
        maps = slide.maps(self._slide_localizer, self.backbone.grid)
        scores = self.localizer.scores(maps.positions)
        weights, sigma = self._weights(scores)

        def winning(found: Tensor) -> Tensor:
            return (found * weights[:, :, None, None]).sum(1, keepdim=True)

        if sigma is None:  # with a negative class
            evident = int(weights.argmax())
            return SlideMask(maps, lambda found: torch.sigmoid(self.settings.omega * winning(found)), evident), scores
        whole = stretched(maps, winning)  # Eq. 8's min-max, over all of the slide
        return SlideMask(maps, lambda found: torch.sigmoid(self.settings.omega * (whole.soft(found) - sigma))), scores

    def _slide_localizer(self, tile: Tensor, _: Tensor) -> Tensor:
        return self.localizer.maps(self.backbone(self.backbone.normalise(tile)))

    def proposes(self, epoch: int) -> bool:
        s = self.settings
        renews = s.self_training > 0 and epoch > 0 and epoch % s.self_training == 0
        return s.grouping > 0 and (epoch == 0 or renews)

    def propose(self, examples: Examples, first: Proposals | None) -> Proposals:
        if first is None:
            return group_images(self.backbone, examples)
        was_training = self.training
        self.eval()
        renewed = [self._renewed(examples[k], int(examples.labels[k]), old) for k, old in enumerate(first)]
        self.train(was_training)
        return renewed

    def end_epoch(self) -> None:
        s = self.settings
        self.t.mul_(s.t_factor).clamp_(max=max(s.t_max, s.t))
        self.sigma.add_(s.sigma_step).clamp_(max=max(s.sigma_max, s.sigma))

    def statistics(self) -> dict[str, float]:
        return {"t": float(self.t), "sigma": float(self.sigma)}

    def _head(self, classes: int) -> WildcatHead:
        return self.settings.head(self.backbone.channels, classes)

    def _features(self, X: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Features of whole images, and those of the inner layers that the decoder reads."""
        return self.backbone.with_layers(X, () if self.decoder is None else self.decoder.layers)

    def _localize(self, X: Tensor, run: MapRunner) -> tuple[Tensor, Tensor]:
        """The localizer's class maps and scores."""
        maps = run(lambda x: self.localizer.maps(self.backbone(x)), X)
        return maps, self.localizer.scores(maps)

    @torch.no_grad()
    def _renewed(self, image: Tensor, label: int, old: Tensor) -> Tensor:
        """The mean of a proposal and the present mask over all flips, if the classifier agrees with the label."""
        output = predict_flipped(self, image)
        if int(output.probs.argmax()) != label:
            return old
        size = [max(1, side // 4) for side in image.shape[2:]]
        fine = F.interpolate(output.mask, size=size, mode="area")[0, 0].cpu()
        return (fine + F.interpolate(old[None, None], size=size, mode="bilinear", align_corners=False)[0, 0]) / 2

    def _cam_logits(self, maps: Tensor, scores: Tensor, images: Tensor) -> Tensor:
        """Logits of M+ at the size of the images; with a negative class, from the maps of all other classes alone."""
        height, width = images.shape[2:]
        weights, sigma = self._weights(scores)
        return mask_logits(
            maps, weights, (height, width), sigma, self.settings.omega, self.settings.grid(self.backbone)
        )

    def _weights(self, scores: Tensor) -> tuple[Tensor, Tensor | None]:
        """Weights of the class maps in the winning map, and the threshold on it, where it is stretched."""
        if self.negative_class is None:
            return scores.softmax(1), self.sigma
        apart = torch.arange(scores.shape[1], device=scores.device) == self.negative_class
        return scores.masked_fill(apart, -torch.inf).softmax(1), None

    def _regions(self) -> tuple[Case, ...]:
        wanted = ((Case.FOREGROUND, self.settings.foreground), (Case.BACKGROUND, self.settings.background != "none"))
        return tuple(case for case, on in wanted if on)

    def _classify_regions(
        self, classifier: WildcatHead, X: Tensor, foreground: Tensor
    ) -> tuple[Tensor | None, Tensor | None]:
        """Scores of C on X+ and X-, which go through the backbone as one batch."""
        regions = self._regions()
        masks = {Case.FOREGROUND: foreground, Case.BACKGROUND: 1 - foreground}
        stacked = torch.cat([self._shrink(X * masks[case]) for case in regions])
        scores = classifier(self.backbone(stacked, *regions)).chunk(len(regions))
        found = dict(zip(regions, scores, strict=True))
        return found.get(Case.FOREGROUND), found.get(Case.BACKGROUND)

    def _shrink(self, images: Tensor) -> Tensor:
        if self.settings.classifier_scale == 1:
            return images
        size = [max(1, round(side * self.settings.classifier_scale)) for side in images.shape[2:]]
        return F.interpolate(images, size=size, mode="bilinear", align_corners=False)


def _following(logits: Tensor, proposals: Tensor | None, negative: Tensor | None) -> Tensor:
    """What following the proposals costs; those of images without foreground say nothing."""
    if proposals is None:
        raise ValueError("method.grouping needs batches with proposals")
    if negative is not None:
        proposals = proposals.masked_fill(negative[:, None, None, None], 0.5)
    return losses.proposal_cross_entropy(logits, F.interpolate(proposals, size=logits.shape[2:], mode="area"))
