"""A soak of the viewer: normal clients beside slow, cut-off and malformed ones.

Starts `histolumen view` as a process on synthetic images. Normal clients browse, predict, upload, delete and correct;
hostile ones send half requests, garbage, wrong lengths, huge heads, stop in the middle, do not read. Exit code 1 unless
- no answer has a status of 500 or more but 503, and no normal client waits in vain;
- every prediction, during and after, equals `Model.predict`;
- memory does not grow from the second quarter of the time to the last by more than --growth;
- afterwards there are no more open files and threads than before, and after the end no temporary files;
- the log contains no name of an image.

usage: python benchmarks/soak_view.py [--seconds 120] [--clients 8] [--hostile 8] [--images 6] [--side 256]
"""

import argparse
import http.client
import json
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from histolumen.engine.model import load
from hostile_clients import ATTACKS, Attack
from viewer_process import ask, items_of, make_images, make_model, megabytes_of, server

_THREADS = 8  # of the server's pool, which grows on demand up to this
_QUIET_SECONDS = 60  # until all hostile connections have been given up


@dataclass
class Tally:
    """What the clients saw."""

    answers: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)

    def bad(self) -> list[str]:
        """Statuses that must not occur, requests of normal clients without an answer, and wrong answers."""
        bad_status = [
            f"{name}: {count}"
            for name, count in sorted(self.answers.items())
            if name.split()[-1] not in {"none", "503"} and name.split()[-1][:1] not in "234"
        ]
        return bad_status + self.wrong


class Soak:
    """Clients of one server."""

    def __init__(self, port: int, paths: list[Path], expected: dict[Path, dict[str, Any]]):
        self.port, self.paths, self.expected = port, paths, expected
        self.items = [item["id"] for item in items_of(port)["items"]]
        self.level = json.loads(ask(port, "GET", f"/api/items/{self.items[0]}")[1])["max_level"]
        self.tally = Tally()

    def normal(self, number: int, end: float) -> None:
        """Browse and predict until `end`."""
        chance, client = random.Random(number), f"127.0.1.{number + 1}"
        while time.monotonic() < end:
            item, path = chance.choice(self.items), chance.choice(self.paths)
            kind, method, address, body = chance.choice(self._requests(item, path))
            try:
                status, content = ask(self.port, method, address, body, client)
            except (OSError, http.client.HTTPException) as error:
                self.tally.answers[f"{kind} {type(error).__name__}"] += 1
                continue
            self.tally.answers[f"{kind} {status}"] += 1
            if kind == "predict" and status == 200 and json.loads(content)["record"] != self.expected[path]:
                self.tally.wrong.append(f"another answer than Model.predict for {path.name}")
            if kind == "upload" and status == 201 and chance.random() < 0.5:
                status, _ = ask(self.port, "DELETE", f"/api/items/{json.loads(content)['id']}", None, client)
                self.tally.answers[f"delete {status}"] += 1
            time.sleep(0.2 if status == 503 else 0.005)

    def _requests(self, item: str, path: Path) -> list[tuple[str, str, str, bytes | None]]:
        one = f"/api/items/{item}"
        return [
            ("page", "GET", "/", None),
            ("items", "GET", "/api/items", None),
            ("detail", "GET", one, None),
            ("tile", "GET", f"{one}/tiles/{self.level}/0_0.jpg", None),
            ("thumbnail", "GET", f"{one}/thumbnail.jpg", None),
            ("follow", "POST", f"{one}/predictions/0", None),
            ("mask", "GET", f"{one}/predictions/0/soft_mask.png", None),
            ("overlay", "GET", f"{one}/predictions/0/overlay.png", None),
            ("regions", "GET", f"{one}/predictions/0/regions.geojson", None),
            ("correct", "PUT", f"{one}/correction", path.read_bytes()),
            ("upload", "POST", "/api/uploads?name=patient-7.png", path.read_bytes()),
            ("predict", "POST", "/api/predict", path.read_bytes()),
        ]

    def hostile(self, number: int, end: float) -> None:
        """Attack until `end`."""
        chance = random.Random(1000 + number)
        attack = Attack(self.port, f"127.0.2.{number + 1}", chance, self.items, self.paths[0].read_bytes(), end)
        while time.monotonic() < end:
            chosen = chance.choice(ATTACKS)
            try:
                status = chosen(attack)
            except OSError:
                status = "none"  # the server has cut the connection
            self.tally.answers[f"hostile {chosen.__name__} {status}"] += 1

    def run(self, pid: int, seconds: float, clients: int, hostile: int) -> None:
        """Let all clients loose."""
        end = time.monotonic() + seconds
        threads = [threading.Thread(target=self.normal, args=(number, end)) for number in range(clients)]
        threads += [threading.Thread(target=self.hostile, args=(number, end)) for number in range(hostile)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            if time.monotonic() < end:
                self.tally.memory.append(megabytes_of(pid))
            time.sleep(min(5.0, seconds / 100))

    def check_answers(self) -> None:
        """Every image gets the right answer after all that."""
        for path in self.paths:
            status, content = ask(self.port, "POST", "/api/predict", path.read_bytes())
            if status != 200 or json.loads(content)["record"] != self.expected[path]:
                self.tally.wrong.append(f"afterwards {path.name}: {status}")


def resources(pid: int) -> tuple[int, int]:
    """Open files and threads of a process."""
    files, threads = (len(list(Path(f"/proc/{pid}/{kind}").iterdir())) for kind in ("fd", "task"))
    return files, threads


def settle(pid: int, files: int) -> tuple[int, int]:
    """Open files and threads when the connections are closed."""
    end = time.monotonic() + _QUIET_SECONDS
    while resources(pid)[0] > files and time.monotonic() < end:
        time.sleep(0.5)
    return resources(pid)


def soak(options: argparse.Namespace, work: Path) -> list[str]:
    """Run it, print the figures, return what is wrong."""
    run = make_model(work / "model")
    paths = make_images(work / "images", options.images, options.side)
    for path in paths:
        path.rename(path.with_name(f"patient-{path.name}"))
    paths = [path.with_name(f"patient-{path.name}") for path in paths]
    model = load(run)
    expected = {path: model.predict(path).record() for path in paths}
    temporary, log = work / "tmp", work / "log.txt"
    temporary.mkdir()
    with log.open("w") as file, server(run, work / "images", file, os.environ | {"TMPDIR": str(temporary)}) as started:
        port, pid = started
        while items_of(port)["predicted"] < len(paths):
            time.sleep(0.2)
        soaked = Soak(port, paths, expected)
        soaked.check_answers()
        time.sleep(1)  # the connections of the first requests are closed
        before = resources(pid)
        soaked.run(pid, options.seconds, options.clients, options.hostile)
        after = settle(pid, before[0])
        soaked.check_answers()
        rest = sum(len(files) for _, _, files in os.walk(temporary))
    return _report(options, soaked.tally, before, after, rest, temporary, log)


def _report(
    options: argparse.Namespace,
    tally: Tally,
    before: tuple[int, int],
    after: tuple[int, int],
    kept: int,
    temporary: Path,
    log: Path,
) -> list[str]:
    quarter = max(1, len(tally.memory) // 4)
    second, last = statistics.mean(tally.memory[quarter : 2 * quarter]), statistics.mean(tally.memory[-quarter:])
    statuses = Counter[str]()
    for name, count in tally.answers.items():
        statuses[name.split()[-1]] += count
    print(f"{options.seconds:.0f} s: {sum(statuses.values())} requests by status: {dict(sorted(statuses.items()))}")
    for name, count in sorted(tally.answers.items()):
        print(f"  {name}: {count}")
    print(f"memory: {second:.1f} MB in the second quarter, {last:.1f} MB in the last, growth {last - second:+.1f} MB")
    print(f"open files {before[0]} -> {after[0]}, threads {before[1]} -> {after[1]}")
    left = sorted(str(path.relative_to(temporary)) for path in temporary.rglob("*"))
    print(f"files of uploads at the end {kept}, after the end {len(left)}")
    text = log.read_text()
    print(f"log: {len(text.splitlines())} lines", *text.splitlines()[:20], sep="\n  ", flush=True)
    problems = tally.bad()
    problems += [f"memory grew by {last - second:.0f} MB"] if last - second > options.growth else []
    problems += [f"open files: {before[0]} before, {after[0]} after"] if after[0] > before[0] else []
    problems += [f"threads: {before[1]} before, {after[1]} after"] if after[1] > before[1] + _THREADS else []
    problems += [f"left behind: {', '.join(left)}"] if left else []
    problems += ["the log contains names of images"] if "patient-" in text else []
    return problems


def main() -> None:
    """Soak, and exit with 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--hostile", type=int, default=8)
    parser.add_argument("--images", type=int, default=6)
    parser.add_argument("--side", type=int, default=256)
    parser.add_argument("--growth", type=float, default=48.0, help="megabytes that count as none")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        problems = soak(options, Path(folder))
    for problem in problems:
        print(f"WRONG: {problem}")
    print("FAILED" if problems else "passed")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
