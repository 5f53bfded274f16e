import asyncio
import threading
import time

import pytest

from histolumen.view.worker import QueueFullError, Worker


@pytest.fixture
def gate():
    return threading.Event()


@pytest.fixture
def make_worker(gate):
    workers = []

    def make(*arguments):
        workers.append(Worker(*arguments))
        workers[-1].start()
        return workers[-1]

    yield make
    gate.set()
    for worker in workers:
        worker.stop()


def occupy(worker, gate):
    """Submit a job that runs until the gate opens."""
    running = threading.Event()

    def work(_):
        running.set()
        gate.wait(10)

    job = worker.submit(work)
    assert running.wait(10)
    return job


def test_jobs_run_in_order_and_return_their_result(make_worker):
    worker = make_worker(8)
    order = []
    jobs = [worker.submit(lambda _, n=n: order.append(n) or n * n) for n in range(5)]
    assert [job.future.result(10) for job in jobs] == [0, 1, 4, 9, 16]
    assert order == [0, 1, 2, 3, 4]


def test_a_full_queue_refuses_and_says_when_to_come_back(make_worker, gate):
    worker = make_worker(2)
    running = occupy(worker, gate)
    waiting = [worker.submit(lambda _: None) for _ in range(2)]
    assert [worker.position(job) for job in (running, *waiting)] == [0, 1, 2]
    with pytest.raises(QueueFullError) as refused:
        worker.submit(lambda _: None)
    assert refused.value.retry_after >= 1
    gate.set()
    for job in waiting:
        job.future.result(10)
    worker.submit(lambda _: None).future.result(10)


def test_an_error_reaches_the_caller_and_the_next_job_runs(make_worker):
    worker = make_worker(4)
    with pytest.raises(ZeroDivisionError):
        worker.submit(lambda _: 1 / 0).future.result(10)
    assert worker.submit(lambda _: 7).future.result(10) == 7


def test_background_work_gives_way_to_jobs(make_worker, gate):
    todo = list(range(1000))

    def idle():
        time.sleep(0.005)
        todo.pop()
        return bool(todo)

    worker = make_worker(4, idle)
    assert worker.submit(lambda _: len(todo)).future.result(10) > 900
    assert todo


def test_stop_refuses_waiting_and_later_jobs(make_worker, gate):
    worker = make_worker(4)
    occupy(worker, gate)
    waiting = worker.submit(lambda _: None)
    threading.Timer(0.1, gate.set).start()
    worker.stop()
    with pytest.raises(QueueFullError):  # an answer, not a request that waits for ever
        waiting.future.result(1)
    with pytest.raises(QueueFullError):
        worker.submit(lambda _: None)


def test_one_client_cannot_fill_the_queue(make_worker, gate):
    worker = make_worker(4)
    occupy(worker, gate)
    for _ in range(2):
        worker.submit(lambda _: None, "greedy")
    with pytest.raises(QueueFullError):
        worker.submit(lambda _: None, "greedy")
    assert worker.submit(lambda _: 1, "other")
    gate.set()


def test_a_withdrawn_job_leaves_its_place_and_is_not_run(make_worker, gate):
    worker = make_worker(1)
    occupy(worker, gate)
    ran = []
    job = worker.submit(lambda _: ran.append("withdrawn"))
    worker.withdraw(job)
    assert worker.waiting == 0
    later = worker.submit(lambda _: ran.append("later"))
    gate.set()
    later.future.result(10)
    assert ran == ["later"]


def test_background_work_that_fails_does_not_stop_the_thread(make_worker):
    worker = make_worker(4, lambda: 1 / 0)
    assert worker.submit(lambda _: 7).future.result(10) == 7


def test_many_requests_that_follow_one_job_leave_nothing_behind(make_worker, gate):
    worker = make_worker(4)
    job = occupy(worker, gate)

    async def follow():
        for _ in range(50):
            assert not await job.wait(0.001)
        return len(job.future._done_callbacks)

    assert asyncio.run(follow()) <= 1
    gate.set()


def test_the_advised_time_is_bounded_after_a_long_job(make_worker, gate):
    worker = make_worker(1)
    worker._seconds = 3600.0  # a slide
    occupy(worker, gate)
    worker.submit(lambda _: None)
    with pytest.raises(QueueFullError) as refused:
        worker.submit(lambda _: None)
    assert refused.value.retry_after <= 60
    gate.set()


def test_a_job_reports_the_progress_of_what_it_runs(make_worker, gate):
    worker = make_worker(2)
    seen = []

    def work(job):
        seen.extend((job.activity, job.done, job.total) for _ in job.track([1, 2, 3], "tiles"))

    worker.submit(work).future.result(10)
    assert seen == [("tiles", 0, 3), ("tiles", 1, 3), ("tiles", 2, 3)]
