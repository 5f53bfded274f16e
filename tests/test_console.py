"""Progress on a terminal and in a log."""

import io

from rich.console import Console

from histolumen import console
from histolumen.console import ConsoleProgress


def progress(*, terminal: bool) -> tuple[ConsoleProgress, io.StringIO]:
    text = io.StringIO()
    made = ConsoleProgress()
    made.console = Console(file=text, force_terminal=terminal, width=100, highlight=False)
    return made, text


def test_a_log_counts_now_and_then_and_at_the_end(monkeypatch):
    made, text = progress(terminal=False)
    clock = iter(range(0, 1000, 6))
    monkeypatch.setattr(console.time, "monotonic", lambda: next(clock))
    assert list(made.track(range(5), "proposing masks")) == [0, 1, 2, 3, 4]
    lines = text.getvalue().splitlines()
    assert lines[0] == "proposing masks: 2 of 5"
    assert lines[-1] == "proposing masks: 5 of 5"


def test_a_counter_while_training_shares_the_display_and_leaves_it_again():
    made, text = progress(terminal=True)
    made.training_started(2, 10, 0)
    for _ in made.track(range(3), "proposing masks"):
        assert [task.description for task in made._bar.tasks] == ["training", "proposing masks"]
    made.training_step({"total": 1.0}, 0.1)
    assert [task.completed for task in made._bar.tasks] == [1]
    made.training_ended()
    assert "training" in text.getvalue()


def test_an_interrupted_counter_leaves_the_display():
    made, _ = progress(terminal=True)
    made.training_started(2, 10, 0)
    counter = iter(made.track(range(3), "proposing masks"))
    next(counter)
    counter.close()
    assert [task.description for task in made._bar.tasks] == ["training"]
    made.training_ended()
