"""A real browser for the tests of the report: pages that keep what they said and asked for.

Needs the extra [browser] and a Chromium (any: set CHROMIUM to its path). Nothing is downloaded.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="needs the extra [browser]")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs [browser]")

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def _chromium() -> str | None:
    wanted = os.environ.get("CHROMIUM")
    return wanted or next((found for name in NAMES if (found := shutil.which(name))), None)


def launched(playwright: Any) -> Any:
    """The Chromium of this machine, kept from talking to anyone; None where there is none."""
    path = _chromium()
    return path and playwright.chromium.launch(
        executable_path=path,
        args=["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
              "--disable-background-networking", "--disable-component-update"],
    )  # fmt: skip


@pytest.fixture(scope="module", name="browser")
def started_browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        started = launched(playwright)
        if started is None:
            pytest.skip("no Chromium found; install one (apt-get install chromium) or set CHROMIUM")
        yield started
        started.close()


class Opened:
    """A page with everything that it said and asked for."""

    def __init__(self, browser: Any, path: Path, width: int = 1280, scheme: str = "light") -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, accept_downloads=True
        )
        self.page = self.context.new_page()
        self.console: list[str] = []
        self.asked: list[str] = []
        self.dialogs: list[str] = []
        self.page.on("console", lambda message: self.console.append(message.text))
        self.page.on("pageerror", lambda error: self.console.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("dialog", self._dismiss)
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-drawn=all]", state="attached", timeout=60_000)

    def _dismiss(self, dialog: Any) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def unfold(self) -> None:
        """Opens what stands beside the subject, so that it is drawn, too."""
        for box in self.page.locator("details.beside > summary").all():
            box.click()
        self.page.wait_for_selector(".figure:not([data-state])", state="detached")

    def figure(self, kind: str, index: int = 0) -> Any:
        return self.page.locator(f'.figure[data-kind="{kind}"][data-index="{index}"]')

    def axis(self, kind: str, expression: str) -> Any:
        script = f"figure => figure.querySelector('.plot')._fullLayout.{expression}"
        return self.figure(kind).evaluate(script)

    def traces(self, kind: str) -> int:
        script = "figure => figure.querySelector('.plot').data.length"
        count: int = self.figure(kind).evaluate(script)
        return count

    def outside(self) -> set[str]:
        """Addresses asked for beyond the page itself."""
        own = self.page.url.partition("#")[0]
        return {u for u in self.asked if u != own and not u.startswith(("data:", "blob:"))}

    def states(self) -> dict[str, set[str]]:
        """States of the figures, by kind."""
        found: dict[str, set[str]] = {}
        script = "figures => figures.map(f => [f.dataset.kind, f.dataset.state])"
        for kind, state in self.page.eval_on_selector_all(".figure", script):
            found.setdefault(kind, set()).add(state)
        return found

    def faults(self) -> list[Any]:
        """Serious accessibility faults, with everything on the page opened."""
        self.page.eval_on_selector_all("details", "all => all.forEach(d => { d.open = true; })")
        return [
            (v["id"], [n["target"] for n in v["nodes"]][:3])
            for v in axe.Axe().run(self.page).response["violations"]
            if v["impact"] in ("serious", "critical")
        ]
