"""The picture of a report in README and docs: docs/images/report.png.

    isocompute report published:qwen2.5-7b-easy --budget 2e6 -o report.html
    python scripts/make_report_image.py report.html

Needs the extra [browser] and a Chromium (tests/helpers/browser_tools.py says which is found;
nothing is downloaded). The picture is the first screen of the page, cut above its list of contents.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "helpers"))

from browser_tools import Opened, launched  # noqa: E402  # the path is set just above

TARGET = ROOT / "docs" / "images" / "report.png"
WIDTH = 1200


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", type=Path, help="the HTML file")
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
    with Image.open(options.output) as picture:  # few colours: a small file
        small = picture.convert("RGB").quantize(192, dither=Image.Dither.NONE)
    small.save(options.output, optimize=True)
    if said or asked:
        parser.error(f"a report must be silent and alone, but it said {said}, asked for {asked}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
