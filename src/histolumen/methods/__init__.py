"""One file per method of the paper's tables, each a PyTorch module behind one small interface (`Method`)."""

from histolumen.methods.all_ones import AllOnes
from histolumen.methods.base import Losses, Method, MethodSettings, build_method, method_names, register
from histolumen.methods.cam_avg import CamAvg
from histolumen.methods.cam_lse import CamLse
from histolumen.methods.cam_max import CamMax
from histolumen.methods.deep_mil import DeepMil
from histolumen.methods.erase import Erase
from histolumen.methods.grad_cam import GradCam
from histolumen.methods.layer_cam import LayerCam
from histolumen.methods.maxmin import MaxMin
from histolumen.methods.maxmin_settings import MaxMinSettings
from histolumen.methods.negev import Negev
from histolumen.methods.pn import Pn
from histolumen.methods.unet import SupervisedUNet
from histolumen.methods.wildcat import Wildcat

__all__ = [
    "AllOnes",
    "CamAvg",
    "CamLse",
    "CamMax",
    "DeepMil",
    "Erase",
    "GradCam",
    "LayerCam",
    "Losses",
    "MaxMin",
    "MaxMinSettings",
    "Method",
    "MethodSettings",
    "Negev",
    "Pn",
    "SupervisedUNet",
    "Wildcat",
    "build_method",
    "method_names",
    "register",
]
