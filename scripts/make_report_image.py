"""The picture of a report in README and docs: docs/images/report.png, from a quickstart.

    isocompute quickstart quickstart
    python scripts/make_report_image.py quickstart/report.html

Needs the extra [browser] and a Chromium (tests/browser_tools.py says which is found; nothing is
downloaded). Start the quickstart by a relative name, as above: the page shows it. The picture is
the first screen of the page, cut above its list of contents.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from browser_tools import Opened, launched  # noqa: E402  # the path is set just above

TARGET = ROOT / "docs" / "images" / "report.png"
WIDTH = 1200


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", type=Path, help="report.html of a quickstart")
    parser.add_argument("-o", "--output", type=Path, default=TARGET)
    options = parser.parse_args()
    with sync_playwright() as playwright:
        browser = launched(playwright)
        if browser is None:
            parser.error("a Chromium must be there; install one or set CHROMIUM to its path")
        opened = Opened(browser, options.report.resolve(), width=WIDTH)
        below = opened.page.locator("nav.contents").bounding_box()["y"]
        opened.page.screenshot(
            path=options.output, clip={"x": 0, "y": 0, "width": WIDTH, "height": below}
        )
        said, asked = opened.console, opened.outside()
        browser.close()
    if said or asked:
        parser.error(f"a report must be silent and alone, but it said {said}, asked for {asked}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
