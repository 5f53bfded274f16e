"""One file per method of the paper's tables, behind one small interface (`base.Method`)."""

from histolumen.methods import maxmin  # noqa: F401 - importing a method registers it
