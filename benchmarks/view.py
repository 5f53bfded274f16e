"""The viewer: first paint, layer switch, and many clients at once.

Starts `histolumen view` as a process on synthetic images, with an untrained network of the demo's recipe or with --run.
Browser (needs chromium): each image is opened once, after all have been predicted in the background, until its first
tile is on the screen (goal: under 1 s); each layer is switched on and off, until the frame with it is painted (goal:
under 150 ms).
Load: clients ask for lists, tiles, thumbnails, masks and predictions as fast as they can. Result: answers by status
(goal: none but 200, 202 and 503), memory of the server in the second and in the last quarter of the time (goal: no
growth), and whether every prediction equals `Model.predict`.

usage: python benchmarks/view.py [--clients 32] [--seconds 60] [--images 12] [--side 1024] [--run RUN]
"""

import argparse
import http.client
import json
import random
import shutil
import statistics
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from histolumen.engine.model import load
from viewer_process import ask, items_of, make_images, make_model, megabytes_of, server

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
OPEN_ITEM = """async (id) => {
  const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
  const started = performance.now();
  document.querySelector(`[data-id="${id}"]`).click();
  while (!performance.getEntriesByType("resource").some((entry) => entry.name.includes(`${id}/tiles/`))) await frame();
  await frame();
  await frame();
  return performance.now() - started;
}"""
SWITCH_LAYER = """async (layer) => {
  const started = performance.now();
  document.getElementById(`layer-${layer}`).click();
  await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
  return performance.now() - started;
}"""


def measure_browser(port: int) -> None:
    """Print the times in the browser."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only where chromium is

    ids = [item["id"] for item in items_of(port)["items"]]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        started = time.perf_counter()
        page.goto(f"http://127.0.0.1:{port}/")
        page.wait_for_selector("#verdict")
        print(f"page, first image and its answer: {1000 * (time.perf_counter() - started):.0f} ms", flush=True)
        paints = [page.evaluate(OPEN_ITEM, each) for each in ids[1:]]
        print(f"first paint of an item: {_spread(paints)} (goal: under 1000)", flush=True)
        page.wait_for_selector("#verdict")
        for layer in ("heat", "outline", "plus", "uncertainty"):
            first, *later = [page.evaluate(SWITCH_LAYER, layer) for _ in range(11)]
            print(f"layer {layer}: first {first:.0f} ms, then {_spread(later)} (goal: under 150)", flush=True)
            page.evaluate(SWITCH_LAYER, layer)
        browser.close()


def measure_load(port: int, pid: int, clients: int, seconds: float, paths: list[Path], run: Path) -> None:
    """Print the answers to many clients at once."""
    model = load(run)
    expected = {path: model.predict(path).record() for path in paths}
    ids = [item["id"] for item in items_of(port)["items"]]
    level = json.loads(ask(port, "GET", f"/api/items/{ids[0]}")[1])["max_level"]
    statuses: Counter[str] = Counter()
    different: list[Path] = []
    durations: list[float] = []
    end = time.monotonic() + seconds

    def client(number: int) -> None:
        chance = random.Random(number)
        while time.monotonic() < end:
            item, path = chance.choice(ids), chance.choice(paths)
            kind = chance.choice(["items", "tile", "thumbnail", "follow", "predict"])
            method, address, body = {
                "items": ("GET", "/api/items", None),
                "tile": ("GET", f"/api/items/{item}/tiles/{level}/0_0.jpg", None),
                "thumbnail": ("GET", f"/api/items/{item}/thumbnail.jpg", None),
                "follow": ("POST", f"/api/items/{item}/predictions/0", None),
                "predict": ("POST", "/api/predict", path.read_bytes()),
            }[kind]
            started = time.monotonic()
            try:
                status, content = ask(port, method, address, body, f"127.0.1.{number + 1}")
            except (OSError, http.client.HTTPException) as error:
                statuses[f"{kind} {type(error).__name__}"] += 1
                continue
            durations.append(time.monotonic() - started)
            statuses[f"{kind} {status}"] += 1
            if kind == "predict" and status == 200 and json.loads(content)["record"] != expected[path]:
                different.append(path)
            if status == 503:
                time.sleep(0.2)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    memory = []
    while any(thread.is_alive() for thread in threads):
        memory.append(megabytes_of(pid))
        time.sleep(seconds / 100)
    quarter = max(1, len(memory) // 4)
    second, last = statistics.mean(memory[quarter : 2 * quarter]), statistics.mean(memory[-quarter:])
    times = _spread([1000 * duration for duration in durations])
    print(f"{clients} clients, {seconds:.0f} s: {sum(statuses.values())} answers, {times}")
    print("  " + ", ".join(f"{name}: {count}" for name, count in sorted(statuses.items())))
    print(f"  memory: {second:.0f} MB in the second quarter, {last:.0f} MB in the last")
    print(f"  predictions that differ from Model.predict: {len(different)} of {statuses['predict 200']}", flush=True)


def _spread(milliseconds: list[float]) -> str:
    return f"median {statistics.median(milliseconds):.0f} ms, at most {max(milliseconds):.0f} ms"


def main() -> None:
    """Measure one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--images", type=int, default=12)
    parser.add_argument("--side", type=int, default=1024)
    parser.add_argument("--run", type=Path, default=None, help="a trained model; default: an untrained one")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        run = options.run or make_model(work / "model")
        paths = make_images(work / "images", options.images, options.side)
        if CHROMIUM:
            with server(run, work / "images") as (port, _):
                while items_of(port)["predicted"] < len(paths):
                    time.sleep(0.2)
                measure_browser(port)
        else:
            print("no chromium: the browser is not measured")
        with server(run, work / "images") as (port, pid):
            measure_load(port, pid, options.clients, options.seconds, paths, run)


if __name__ == "__main__":
    main()
