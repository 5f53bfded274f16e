"""Python's search for reference cycles, paused while libraries are imported and a model is loaded.

Imports make 400,000 objects that stay. The search runs again and again meanwhile, looks at all of them and frees
nothing: a sixth of the time of a start, and as much again when the interpreter exits.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused_collector() -> Iterator[None]:
    """Search for no cycles within the block, and never for those of objects that exist at its end."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
