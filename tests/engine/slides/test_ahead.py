import os
import sys
import threading

import pytest

from histolumen.engine.slides.ahead import prepared_ahead


def test_items_come_in_order_and_few_are_prepared_in_advance():
    started, lead = [], []

    def prepare(item: int) -> int:
        started.append(item)
        return item * item

    for item, square in prepared_ahead(range(20), prepare, 2):
        assert square == item * item
        lead.append(len(started) - item)
    assert max(lead) <= 2 * 2


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, priorities belong to processes")
def test_preparing_threads_give_way_to_the_network():
    def priority(_: int) -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    own = priority(0)
    if own == 19:
        pytest.skip("there is no lower priority than that of this process")
    assert all(nice > own for _, nice in prepared_ahead(range(3), priority, 2))
    assert priority(0) == own
