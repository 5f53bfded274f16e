"""One file per method of the paper's tables, behind one small interface (`base.Method`)."""

# importing a method registers it
from histolumen.methods import (  # noqa: F401
    all_ones,
    cam_avg,
    cam_lse,
    cam_max,
    deep_mil,
    erase,
    grad_cam,
    layer_cam,
    maxmin,
    negev,
    pn,
    unet,
    wildcat,
)
