"""Convolutions with the BatchNorm behind them folded in, for prediction.

With fixed statistics, BatchNorm is a scale and a shift per channel, which the convolution in front of it can apply at
no cost. Which convolution that is, a run of the network shows: the layer gets the very tensor that the convolution
returned, unchanged. Weights are stored channels last, the layout in which oneDNN computes fastest; inputs and outputs
follow them. On a CPU, large kernels are packed for oneDNN, and many of 3 x 3 pixels need half of the multiplications.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from histolumen.encoders import onednn, winograd
from histolumen.encoders.batchnorm import Case, CaseBatchNorm, current_case
from histolumen.encoders.onednn import PackedKernel
from histolumen.vision import Conv2dSame, pad_same

Norm = CaseBatchNorm | nn.BatchNorm2d
_NORMS = (CaseBatchNorm, nn.BatchNorm2d)
_PLAIN = (nn.Conv2d, Conv2dSame)  # exact types: others standardise their weights or choose them by input


class FoldedConv(nn.Conv2d):
    """A convolution followed by an activation; with separate statistics it has weights for each case.

    Args:
        conv: the convolution; its tensors are not changed.
        norm: the BatchNorm behind it; None: there is none.
        activation: of `onednn.ACTIVATIONS`, or None.
    """

    def __init__(self, conv: nn.Conv2d, norm: Norm | None = None, activation: nn.Module | None = None):
        super().__init__(
            conv.in_channels, conv.out_channels, (1, 1), groups=conv.groups, bias=False, device="meta"
        )  # the rest is taken over
        self.kernel_size, self.stride, self.dilation = conv.kernel_size, conv.stride, conv.dilation
        self.padding = conv.padding
        self.pads_same = isinstance(conv, Conv2dSame)
        self.activation = activation
        self.separate = isinstance(norm, CaseBatchNorm) and norm.statistics == "separate"
        self.by_rows = winograd.suits(self) and (self.pads_same or self.padding == (1, 1))
        # made when they are first needed, of weights that never change
        self._row_kernels: dict[Case, list[PackedKernel]] = {}
        self._packed: dict[Case, PackedKernel] = {}
        for case in Case if self.separate else (Case.WHOLE,):
            weight, bias = _parameters(conv, *folded(conv, norm, case))
            self.register_parameter(_named(case, "weight"), weight)
            self.register_parameter(_named(case, "bias"), bias)
            if self.pads_same:
                self.register_parameter(_named(case, "longer"), _with_zeros_in_front(weight))

    def forward(self, input: Tensor) -> Tensor:
        case = current_case() if self.separate else Case.WHOLE
        return self._run(input, case or Case.WHOLE)  # none: a placeholder passes the layers before a mask on features

    def _run(self, x: Tensor, case: Case) -> Tensor:
        weight, bias, padding = getattr(self, _named(case, "weight")), getattr(self, _named(case, "bias")), self.padding
        on_onednn = onednn.can_run(x)
        if on_onednn and self.by_rows and winograd.is_large_enough(x):
            if case not in self._row_kernels:
                self._row_kernels[case] = winograd.row_kernels(weight)
            return winograd.convolve(x, self._row_kernels[case], bias, self.out_channels, self.activation)
        if self.pads_same:
            x, weight, padding = self._padded_as_tensorflow(x, weight, getattr(self, _named(case, "longer")))
        if on_onednn and not isinstance(padding, str):
            sizes = padding, self.stride, self.dilation
            if self.groups == 1 and not self.pads_same and weight.numel() >= onednn.WORTH_PACKING:
                if case not in self._packed:
                    self._packed[case] = PackedKernel(weight, *sizes)
                weight = self._packed[case].fitting(x)
            return onednn.convolve(x, weight, bias, *sizes, self.groups, self.activation)
        x = F.conv2d(x, weight, bias, self.stride, padding, self.dilation, self.groups)
        return x if self.activation is None else self.activation(x)

    def _padded_as_tensorflow(
        self, x: Tensor, weight: Tensor, longer: Tensor
    ) -> tuple[Tensor, Tensor, tuple[int, ...]]:
        """Input, weight and padding of a convolution with TensorFlow's padding, which may be wider below and right.

        Torch pads both ends alike; a kernel with a row and a column of zeros in front makes up for the difference. That
        costs less than a padded copy of the input.
        """
        is_traced = torch.jit.is_tracing()  # pyright: ignore[reportPrivateImportUsage] - documented
        padding = None if is_traced else _padding(x, self.kernel_size, self.stride, self.dilation)
        if padding is None:  # or a trace, which must not depend on the size of the input
            padded = pad_same(x, list(self.kernel_size), list(self.stride), list(self.dilation))
            return padded, weight, (0, 0)
        above, below = padding
        return x, weight if above == below else longer, below


def _padding(
    x: Tensor, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """TensorFlow's padding (above, left) and (below, right); None if these differ in one direction only, or if the
    kernel is dilated."""
    sizes = zip(x.shape[2:], kernel, stride, strict=True)
    totals = [max((-(-side // step) - 1) * step + length - side, 0) for side, length, step in sizes]
    if len({total % 2 for total in totals}) > 1 or any(step != 1 for step in dilation):
        return None
    return tuple(total // 2 for total in totals), tuple(-(-total // 2) for total in totals)


def folded(conv: nn.Conv2d, norm: Norm | None, case: Case) -> tuple[Tensor, Tensor | None]:
    """Weight and bias of a convolution that equals `conv` followed by `norm` in evaluation."""
    if norm is None:
        return conv.weight, conv.bias
    layer = norm.norm if isinstance(norm, CaseBatchNorm) else norm
    mean, var = norm.running(case) if isinstance(norm, CaseBatchNorm) else (norm.running_mean, norm.running_var)
    if mean is None or var is None:
        raise ValueError("BatchNorm without running statistics cannot be folded")
    scale = (var.double() + layer.eps).rsqrt() * (1 if layer.weight is None else layer.weight.double())
    shift = (0 if conv.bias is None else conv.bias.double()) - mean.double()
    bias = shift * scale + (0 if layer.bias is None else layer.bias.double())
    weight = conv.weight.double() * scale[:, None, None, None]
    return weight.to(conv.weight.dtype), bias.to(conv.weight.dtype)


def _parameters(conv: nn.Conv2d, weight: Tensor, bias: Tensor | None) -> tuple[nn.Parameter, nn.Parameter | None]:
    needs = conv.weight.requires_grad
    copied = weight.detach().contiguous(memory_format=torch.channels_last)
    return nn.Parameter(copied, needs), None if bias is None else nn.Parameter(bias.detach(), needs)


def _with_zeros_in_front(weight: Tensor) -> nn.Parameter:
    longer = F.pad(weight.detach(), (1, 0, 1, 0)).contiguous(memory_format=torch.channels_last)
    return nn.Parameter(longer, requires_grad=False)


def _named(case: Case, tensor: str) -> str:
    """Name of a parameter: those of whole images, or of all cases, have that of any convolution."""
    return tensor if case is Case.WHOLE else f"{case}_{tensor}"


def has_batchnorm(network: nn.Module) -> bool:
    """Whether there is anything to fold."""
    return any(isinstance(module, _NORMS) for module in network.modules())


@torch.no_grad()
def fold(network: nn.Module, run: Callable[[], object]) -> None:
    """Replace, in place, the convolutions of `network` that `run` uses, with the BatchNorm and activation behind them.

    Args:
        network: in evaluation mode; its tensors are not changed, so it may share them with another network.
        run: runs it on any input.
    """
    modules = dict(network.named_modules())
    inside = {f"{name}.norm" for name, module in modules.items() if isinstance(module, CaseBatchNorm)}
    names = {
        name: module
        for name, module in modules.items()
        if name not in inside
        and (_is_plain(module) or isinstance(module, _NORMS) or type(module) in onednn.ACTIVATIONS)
    }
    source = _follow(names, run)
    follower = {before: name for name, before in source.items() if before}
    for name in (name for name in source if _is_plain(modules[name])):
        norm_name = follower.get(name)
        norm = modules[norm_name] if norm_name else None
        if norm is not None and not isinstance(norm, _NORMS):  # an activation directly behind the convolution
            norm_name, norm = None, None
        own = _own_activation(norm) if norm is not None else None
        after = follower.get(norm_name) if norm_name and own is None else None
        act_name = after if after and type(modules[after]) in onednn.ACTIVATIONS else None
        activation = own if type(own) in onednn.ACTIVATIONS else modules[act_name] if act_name else None
        _replace(network, name, FoldedConv(modules[name], norm, activation))  # type: ignore[arg-type]
        if norm_name:
            _replace(network, norm_name, own if own is not None and activation is None else nn.Identity())
        if act_name:
            _replace(network, act_name, nn.Identity())


def _is_plain(module: nn.Module) -> bool:
    return isinstance(module, nn.Conv2d) and type(module) in _PLAIN and module.padding_mode == "zeros"


def _own_activation(norm: nn.Module) -> nn.Module | None:
    """The activation inside a BatchNorm layer; None where it has none."""
    own = norm.activation if isinstance(norm, CaseBatchNorm) else getattr(norm, "act", None)
    return own if isinstance(own, nn.Module) and not isinstance(own, nn.Identity) else None


def _follow(names: dict[str, nn.Module], run: Callable[[], object]) -> dict[str, str | None]:
    """For each layer that runs, the layer whose output it always gets, if its output goes nowhere else among them."""
    made: dict[tuple[int, int], str] = {}  # by identity of the output, and how often it was written to
    alive: list[Tensor] = []  # while they exist, no other tensor has their identity
    sources: dict[str, set[str | None]] = {}
    readers: dict[str, set[str]] = {}
    handles = []
    for name, module in names.items():

        def before(_module: nn.Module, inputs: tuple[Tensor, ...], name: str = name) -> None:
            maker = made.get((id(inputs[0]), inputs[0]._version))
            sources.setdefault(name, set()).add(maker)
            if maker is not None:
                readers.setdefault(maker, set()).add(name)

        def after(_module: nn.Module, _inputs: object, output: Tensor, name: str = name) -> None:
            made[id(output), output._version] = name
            alive.append(output)

        handles += [module.register_forward_pre_hook(before), module.register_forward_hook(after)]
    try:
        run()
    finally:
        for handle in handles:
            handle.remove()
    only = {name: next(iter(makers)) if len(makers) == 1 else None for name, makers in sources.items()}
    return {name: maker if maker and readers[maker] == {name} else None for name, maker in only.items()}


def _replace(network: nn.Module, name: str, module: nn.Module) -> None:
    parent, _, child = name.rpartition(".")
    setattr(network.get_submodule(parent), child, module)
