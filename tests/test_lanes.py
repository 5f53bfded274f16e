"""Passes side by side: in order, as alone, and with a share of the processors each."""

import subprocess
import sys
import threading

import pytest
import torch
from torch import nn

from histolumen import lanes
from histolumen.encoders.backbone import BackboneSettings, build_backbone
from histolumen.methods.base import build_method, predict_flipped, settings_of

CPU = torch.device("cpu")


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_results_come_in_the_order_of_the_items(two_threads):
    gate = threading.Event()

    def run(item: int) -> int:
        if item == 0:
            assert gate.wait(10)  # until the second item is done, which another lane must do
        else:
            gate.set()
        return item * item

    assert lanes.side_by_side(run, range(9), CPU) == [item * item for item in range(9)]


def test_lanes_share_the_threads_of_the_caller(two_threads):
    inside = lanes.side_by_side(lambda _: (torch.get_num_threads(), lanes.lanes_for(4, CPU)), range(4), CPU)
    assert inside == [(1, 1)] * 4  # a lane has no lanes of its own
    assert torch.get_num_threads() == 2
    numbers: list[int] = []
    later = threading.Thread(target=lambda: numbers.append(torch.get_num_threads()))
    later.start()
    later.join()
    assert numbers == [2]


@pytest.mark.parametrize(("threads", "device", "count"), [(1, "cpu", 4), (2, "cuda", 4), (2, "cpu", 1)])
def test_one_lane_is_the_calling_thread(threads, device, count, two_threads):
    torch.set_num_threads(threads)
    where = lanes.side_by_side(lambda _: threading.get_ident(), range(count), torch.device(device))
    assert set(where) == {threading.get_ident()}


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_modes_of_torch_are_those_of_the_caller(mode, two_threads):
    def modes(_: int) -> tuple[bool, bool, bool]:
        return torch.is_inference_mode_enabled(), torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")

    with mode(), torch.autocast("cpu", torch.bfloat16):
        assert set(lanes.side_by_side(modes, range(4), CPU)) == {modes(0)}


def test_an_error_is_raised_and_nothing_runs_on(two_threads):
    done: list[int] = []

    def run(item: int) -> int:
        if item == 2:
            raise ValueError("item 2")
        done.append(item)
        return item

    with pytest.raises(ValueError, match="item 2"):
        lanes.side_by_side(run, range(100_000), CPU)
    count = len(done)
    assert count < 99_999
    threading.Event().wait(0.1)
    assert len(done) == count


def test_a_stream_takes_items_when_a_lane_is_about_to_be_free(two_threads):
    taken: list[int] = []

    def items():
        for item in range(20):
            taken.append(item)
            yield item

    for done, result in enumerate(lanes.stream(lambda item: item + 1, items(), 2)):
        assert result == done + 1
        assert len(taken) <= done + 3


def test_a_stream_that_is_given_up_waits_for_what_runs(two_threads):
    """What its passes read may be closed afterwards."""
    running, done = threading.Event(), []

    def run(item: int) -> int:
        if item > 0:
            running.set()
            threading.Event().wait(0.2)
            done.append(item)
        return item

    results = lanes.stream(run, range(100), 2)
    assert next(results) == 0
    assert running.wait(10)
    results.close()
    finished = len(done)
    assert finished >= 1
    threading.Event().wait(0.3)
    assert len(done) == finished


def test_a_process_that_is_forked_has_lanes_of_its_own():
    code = (
        "import os, torch; from histolumen.lanes import side_by_side; torch.set_num_threads(2)\n"
        "run = lambda: sum(side_by_side(lambda x: x, range(4), torch.device('cpu')))\n"
        "assert run() == 6\n"
        "child = os.fork()\n"
        "if child == 0: os._exit(run())\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert result.stdout.split() == ["6"], result.stderr


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("maxmin", {"mask_from": "decoder", "refine": True}),
        ("maxmin", {"mask_at": "features"}),
        ("layer_cam", {}),
        ("grad_cam", {}),
        ("erase", {"test_rounds": 2}),
    ],
)
def test_flips_side_by_side_are_those_one_after_the_other(name, options, two_threads):
    """Passes in several threads share one network: hooks and modes of one must not reach another."""
    torch.manual_seed(0)
    backbone = build_backbone(BackboneSettings(name="test_resnet", weights="none", statistics="separate"))
    method = build_method(settings_of(name)(**options), backbone, 2).eval()
    for layer in method.modules():  # outputs that tell images and cases apart
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.normal_(layer.weight)
    images = torch.rand(1, 3, 96, 160)
    with torch.inference_mode():
        for _ in range(5):
            together = predict_flipped(method, images)
            torch.set_num_threads(1)
            alone = predict_flipped(method, images)
            torch.set_num_threads(2)
            assert torch.allclose(together.probs, alone.probs, atol=1e-5)
            assert torch.allclose(together.soft_mask, alone.soft_mask, atol=1e-4)


def test_meanwhile_runs_beside_the_block_with_one_thread_and_the_modes_of_the_caller(two_threads):
    entered = threading.Event()

    def run() -> tuple[int, int, bool]:
        assert entered.wait(10)
        return torch.get_num_threads(), lanes.lanes_for(4, CPU), torch.is_inference_mode_enabled()

    with torch.inference_mode(), lanes.meanwhile(run) as outcome:
        entered.set()
        assert outcome.result(10) == (1, 1, True)
    assert torch.get_num_threads() == 2


def test_meanwhile_ends_with_the_block_even_after_an_error(two_threads):
    """What it reads may be closed afterwards."""
    done: list[bool] = []

    def run() -> None:
        threading.Event().wait(0.2)
        done.append(True)

    with pytest.raises(ValueError, match="in the block"), lanes.meanwhile(run):
        raise ValueError("in the block")
    assert done
