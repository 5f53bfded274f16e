"""Max-Min uncertainty (Belharbi et al.): the classifier is certain on the foreground and uncertain on the background.

A localizer and a classifier share one backbone. The localizer's winning class map becomes the mask M+ (Eq. 8). The
classifier must predict the class of X+ = X * M+ (Eq. 1-1) and be uncertain on X- = X * (1 - M+) (Eq. 6 or 7), while a
barrier keeps both regions large (Eq. 5).

Extensions of the paper, all off by default (docs/method.md): a mask decoder (`mask_from`), masks that are refined for
each image (`refine`), mask proposals from tissue clusters (`grouping`), which the current mask can update
(`self_training`), an edge-aware term (`edges`), a class whose images have no foreground (`negative_evidence`), and
masking of features instead of the image (`mask_at`).
"""

from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from histolumen import losses
from histolumen.data.batch import Batch
from histolumen.encoders.backbone import Backbone, BackboneSettings, build_backbone
from histolumen.encoders.batchnorm import Case
from histolumen.encoders.geometry import FeatureGeometry, enlarge, min_max
from histolumen.encoders.tapping import tapped
from histolumen.methods.base import Losses, Method, register
from histolumen.methods.masked_features import mask_at, masked_layer
from histolumen.methods.maxmin_settings import MaxMinSettings
from histolumen.methods.proposed_masks import proposal_loss, updated_proposals
from histolumen.methods.redrawing import Redrawing, tissue_at
from histolumen.methods.view import Answer, Layer, MapRunner, Mask, View, appended, at_once, beside, resized, stretched
from histolumen.nets.discriminant import Refinement
from histolumen.nets.pooling import WildcatHead
from histolumen.nets.pyramid import PyramidDecoder
from histolumen.proposals.images import Proposals, WholeImages
from histolumen.proposals.propose import propose_masks


def mask_logits(
    class_maps: Tensor,
    probs: Tensor,
    size: tuple[int, int],
    sigma: Tensor | float | None,
    omega: float,
    geometry: FeatureGeometry,
) -> Tensor:
    """Eq. 8 before its sigmoid: logits of M+ from the localizer's class maps.

    The winning map is the sum of the class maps weighted by the localizer's probabilities, which is differentiable. It
    is resized to the image and normalised to [0, 1] **per image**, so that sigma means the same for every image. A
    normalised map is never empty. With `sigma=None` the map is not normalised; it is positive where it is evidence for
    its class.
    """
    winning = enlarge((class_maps * probs[:, :, None, None]).sum(1, keepdim=True), size, geometry)
    return omega * (winning if sigma is None else min_max(winning) - sigma)


@register(MaxMinSettings)
class MaxMin(Method):
    """Algorithm 1 of the paper."""

    t: Tensor
    sigma: Tensor

    def __init__(self, settings: MaxMinSettings, backbone: Backbone, classes: int):
        super().__init__()
        self.settings = settings
        self.backbone = backbone
        self.localizer = self._head(classes)
        # without X+ and X- it has no input, and its weights would have no gradient
        self.classifier = self._head(classes) if self._regions() else None
        self.decoder: PyramidDecoder | None = None
        if settings.mask_from == "decoder":
            self.decoder = PyramidDecoder(backbone, settings.decoder_stride, settings.decoder_width)
        self.refinement: Refinement | None = None
        if settings.refine and self.decoder is not None:
            self.refinement = Refinement(self.decoder.level_channels[: self.decoder.fine_levels])
        self.redrawing = Redrawing(backbone) if settings.refine and self.decoder is None else None
        self.masked_layer: str | None = None
        """The layer whose features are masked; None: the image is."""
        if settings.mask_at == "features" and self.classifier is not None:
            self.masked_layer = masked_layer(backbone, settings.mask_stride)
        self.register_buffer("t", torch.tensor(settings.t))
        self.register_buffer("sigma", torch.tensor(settings.sigma))
        self.register_load_state_dict_pre_hook(_drop_former_buffer)

    @property
    def masks_pixels(self) -> bool:
        """Whether the class is predicted from X+."""
        return self.settings.foreground and self.settings.class_from == "foreground"

    @property
    def empty_class(self) -> int | None:
        """The class whose masks are kept empty by `negative_evidence`; None where Eq. 8 is taken as printed."""
        return self.negative_class if self.settings.negative_evidence else None

    def losses(self, batch: Batch) -> Losses:
        s = self.settings
        X = self.backbone.normalise(batch.images)
        with tapped(self.backbone.trunk, *([self.masked_layer] if self.masked_layer else [])) as early:
            features, inner = self._features(X)  # forward X into M
        maps = self.localizer.maps(features)
        scores = self.localizer.scores(maps)
        terms = {"localizer": losses.cross_entropy(scores, batch.labels)}
        negative = None if self.empty_class is None else batch.labels == self.empty_class
        if self.decoder is None:
            logits = self._cam_logits(maps, scores, X)
            foreground = torch.sigmoid(logits)  # M+; M- is its complement
        else:
            logits = self.decoder(features, inner)
            foreground = self.decoder.mask(logits, *X.shape[2:])
        if s.grouping:
            terms["grouping"] = s.grouping * proposal_loss(logits, batch.proposals, negative)
        if negative is not None:
            terms["negative_evidence"] = s.negative_evidence * losses.negative_evidence(logits, negative)
        if s.edges:
            terms["edges"] = s.edges * losses.edge_consistency(foreground, batch.images)
        if s.size_barrier:
            terms["size"] = losses.size_barrier(foreground, self.t, s.size_unit, negative)
        if self.classifier is not None:
            # forward X+, X- into C
            region_scores = self._classify_regions(self.classifier, early[0] if early else X, foreground)
            if (on_plus := region_scores.get(Case.FOREGROUND)) is not None:
                scores = on_plus if self.masks_pixels else scores
                terms["foreground"] = losses.cross_entropy(on_plus, batch.labels)
            if (on_minus := region_scores.get(Case.BACKGROUND)) is not None and s.background != "none":
                terms["background"] = s.lambda_ * losses.background_uncertainty(on_minus, s.background)
        return Losses(terms, scores)

    def predict(self, view: View) -> Answer:
        """Algorithm 1 at test time: the mask from X, the class from X+ or from X. X- is never computed."""
        mask, scores = self._locate(view)
        if self.classifier is not None and self.masks_pixels:
            if self.masked_layer is None:
                scale, masking = self.settings.classifier_scale, torch.mul
            else:
                scale, masking = 1.0, appended
            on_plus = view.positions(self._classifier_maps, self.backbone.geometry, mask, scale, masking)
            scores = self.classifier.scores(on_plus)
        elif scores is None:
            scores = self.localizer.scores(view.positions(self._localizer_maps, self.backbone.geometry))
        return Answer(scores.softmax(1), mask)

    def classify_region(self, pixels: Tensor, region: Case, run: MapRunner = at_once) -> Tensor:
        """The classifier's probabilities; a region that it was not trained on is classified as the other one."""
        if self.classifier is None:
            return super().classify_region(pixels, region, run)
        classifier, trained = self.classifier, self._regions()
        case = region if region in trained else trained[0]
        if self.masked_layer is None:
            pixels = resized(pixels, self.settings.classifier_scale)
        else:  # masked pixels are zero in all channels
            pixels = appended(pixels, (pixels != 0).any(1, keepdim=True))
        maps = run(lambda X: classifier.maps(self._region_features(X, case)), pixels)
        return classifier.scores(maps).softmax(1)

    def _locate(self, view: View) -> tuple[Mask, Tensor | None]:
        """M+, and the localizer's scores where the same pass gives them."""
        if self.decoder is not None:
            # fitted to windows or tiles, the refinement would depend on where they lie
            net = self._refined_maps if self.refinement is not None and view.at_once else self._decoder_maps
            maps = view.maps(net, FeatureGeometry.of_cells(self.decoder.stride))
            mask = Mask((Layer(maps, lambda values: values[:, -1:], torch.sigmoid),))
            from_image = self.settings.class_from == "image"
            return mask, self.localizer.scores(maps.positions[:, :-1]) if from_image else None
        maps = view.maps(self._localizer_maps, self.settings.align(self.backbone.geometry))
        scores = self.localizer.scores(maps.positions)
        weights, sigma = self._weights(scores)
        omega = self.settings.omega

        def winning(class_maps: Tensor) -> Tensor:
            return (class_maps * weights[:, :, None, None]).sum(1, keepdim=True)

        if sigma is None:  # with a negative class the map is not normalised
            layer = Layer(maps, winning, lambda value: torch.sigmoid(omega * value))
            return self._redrawn(Mask((layer,)), view), scores
        layer = stretched(maps, winning, lambda value: torch.sigmoid(omega * (value - sigma)))  # Eq. 8
        return self._redrawn(Mask((layer,)), view), scores

    def _redrawn(self, mask: Mask, view: View) -> Mask:
        """A mask from class maps, refined where images are seen at once."""
        if self.redrawing is None or not view.at_once:
            return mask
        return self.redrawing.redrawn(mask, view, self.backbone)

    def _localizer_maps(self, X: Tensor) -> Tensor:
        return self.localizer.maps(self.backbone(X))

    def _classifier_maps(self, X_plus: Tensor) -> Tensor:
        return cast("WildcatHead", self.classifier).maps(self._region_features(X_plus, Case.FOREGROUND))

    def _region_features(self, pixels: Tensor, region: Case) -> Tensor:
        """Features of X+ or X-, or, where features are masked, of X with the mask as fourth channel."""
        if self.masked_layer is None:
            return self.backbone(pixels, region)
        early = self.backbone.up_to(self.masked_layer, pixels[:, :3])
        return self.backbone.after(
            self.masked_layer, early * mask_at(pixels[:, 3:], early, self.settings.mask_stride), region
        )

    def _decoder_maps(self, X: Tensor) -> Tensor:
        """Logits of the mask [B, 1, h, w]; before them, where they give the class, the localizer's class maps."""
        features, inner = self._features(X)
        return self._with_class_maps(cast("PyramidDecoder", self.decoder)(features, inner), features)

    def _refined_maps(self, X: Tensor) -> Tensor:
        """`_decoder_maps` with refined logits."""
        decoder, refinement = cast("PyramidDecoder", self.decoder), cast("Refinement", self.refinement)
        features, inner = self._features(X)
        logits = decoder(features, inner)
        tissue = tissue_at(X, logits, decoder.stride)
        return self._with_class_maps(refinement(logits, (inner or [features])[: decoder.fine_levels], tissue), features)

    def _with_class_maps(self, logits: Tensor, features: Tensor) -> Tensor:
        return beside(self.localizer.maps(features), logits) if self.settings.class_from == "image" else logits

    def wants_proposals(self, epoch: int) -> bool:
        s = self.settings
        updates = s.self_training > 0 and epoch > 0 and epoch % s.self_training == 0
        return s.grouping > 0 and (epoch == 0 or updates)

    def propose(self, images: WholeImages, first: Proposals | None) -> Proposals:
        if first is None:
            return propose_masks(self._grouping_backbone(), images)
        return updated_proposals(self, images, first)

    def on_epoch_end(self) -> None:
        s = self.settings
        self.t.mul_(s.t_factor).clamp_(max=max(s.t_max, s.t))
        self.sigma.add_(s.sigma_step).clamp_(max=max(s.sigma_max, s.sigma))

    def scheduled_values(self) -> dict[str, float]:
        return {"t": float(self.t), "sigma": float(self.sigma)}

    def _grouping_backbone(self) -> Backbone:
        """The backbone whose features are clustered; another one than the network's own is not kept."""
        name = self.settings.grouping_backbone
        if name is None:
            return self.backbone
        return build_backbone(BackboneSettings(name=name, output_stride=16)).to(self.t.device)

    def _head(self, classes: int) -> WildcatHead:
        return self.settings.head(self.backbone.channels, classes)

    def _features(self, X: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Features of whole images, and the finer inputs of the decoder."""
        if self.decoder is None:
            return self.backbone(X), []
        features, inner = self.backbone.with_layers(X, self.decoder.layers)
        return features, self.decoder.with_guides(inner, X)

    def _cam_logits(self, maps: Tensor, scores: Tensor, images: Tensor) -> Tensor:
        """Logits of M+ at the size of the images; with a negative class, only from the maps of the other classes."""
        height, width = images.shape[2:]
        weights, sigma = self._weights(scores)
        return mask_logits(
            maps, weights, (height, width), sigma, self.settings.omega, self.settings.align(self.backbone.geometry)
        )

    def _weights(self, scores: Tensor) -> tuple[Tensor, Tensor | None]:
        """Weights of the class maps in the winning map, and sigma; None if the map is not normalised."""
        if self.empty_class is None:
            return scores.softmax(1), self.sigma
        is_negative = torch.arange(scores.shape[1], device=scores.device) == self.empty_class
        return scores.masked_fill(is_negative, -torch.inf).softmax(1), None

    def _regions(self) -> tuple[Case, ...]:
        regions = ((Case.FOREGROUND, self.settings.foreground), (Case.BACKGROUND, self.settings.background != "none"))
        return tuple(case for case, enabled in regions if enabled)

    def _classify_regions(self, classifier: WildcatHead, unmasked: Tensor, foreground: Tensor) -> dict[Case, Tensor]:
        """Scores of C on X+ and X-; `unmasked` is X or its features."""
        masked = self._masked(unmasked, foreground)
        backbone = self.backbone
        run = backbone if self.masked_layer is None else partial(backbone.after, self.masked_layer)
        if backbone.tells_cases_apart:
            scores = [classifier(run(images, case)) for case, images in masked.items()]
        else:  # one batch is a little faster
            scores = classifier(run(torch.cat(list(masked.values())))).chunk(len(masked))
        return dict(zip(masked, scores, strict=True))

    def _masked(self, unmasked: Tensor, foreground: Tensor) -> dict[Case, Tensor]:
        """X+ and X-, as far as they are trained on."""
        regions = self._regions()
        if self.masked_layer is None:
            scale = self.settings.classifier_scale
            on_foreground = on_background = resized(unmasked * foreground, scale)
            if Case.BACKGROUND in regions:  # resizing is linear: X- is what X+ leaves of X, without its own resizing
                on_background = resized(unmasked, scale) - on_foreground
        else:
            foreground = mask_at(foreground, unmasked, self.settings.mask_stride)
            on_foreground, on_background = unmasked * foreground, unmasked * (1 - foreground)
        masked = {Case.FOREGROUND: on_foreground, Case.BACKGROUND: on_background}
        return {case: masked[case] for case in regions}


def _drop_former_buffer(method: MaxMin, state: dict[str, Any], prefix: str, *_: Any) -> None:  # noqa: ARG001 - torch's signature
    """Earlier versions stored the index of the negative class with the weights; it now follows from the settings."""
    state.pop(f"{prefix}negative_class", None)
