"""A real browser for tests: the system's chromium, driven by playwright."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
_OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
LAPTOP, TABLET = (1280, 800), (820, 1180)


@dataclass
class Visit:
    """An open page, everything that it requested, and everything that went wrong in it."""

    page: Page
    address: str
    screenshots: Path
    requests: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def text(self, selector: str) -> str:
        return self.page.locator(selector).inner_text()

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def shoot(self, name: str) -> None:
        self.page.wait_for_timeout(150)  # the next frame is painted
        self.page.screenshot(path=self.screenshots / f"{name}.png")

    def painted(self) -> int:
        """Number of overlay pixels that are not transparent."""
        self.page.wait_for_timeout(150)
        return self.page.evaluate(
            """() => { const c = document.querySelector("#pane-0 canvas.overlay");
            const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
            let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 0; return n; }"""
        )


@contextmanager
def browser() -> Iterator[Browser]:
    """A headless browser."""
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=list(_OPTIONS))
        yield started
        started.close()


@contextmanager
def visit(
    started: Browser, address: str, screenshots: Path, size: tuple[int, int] = LAPTOP, scheme: str = "light"
) -> Iterator[Visit]:
    """Open the viewer and wait for its first answer."""
    width, height = size
    context = started.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    page = context.new_page()
    opened = Visit(page, address, screenshots)
    page.on("request", lambda request: opened.requests.append(request.url))
    page.on("pageerror", lambda error: opened.problems.append(str(error)))
    page.on("console", lambda line: opened.problems.append(line.text) if line.type == "error" else None)
    page.goto(address)
    page.wait_for_selector("#verdict")
    yield opened
    context.close()
