"""Fetch Plotly's small bundle, so that reports are 3.6 MB smaller and open in half the time.

    python scripts/fetch_plotly.py [--force]

The `plotly` wheel ships the whole bundle only, and this repository holds no code of others. npm has
the bundle that draws lines and bars, which is all that the report needs. It is fetched by `npm
pack`, checked against the hash below, and put where `isocompute.report` looks for it; a wheel built
afterwards contains it. Without npm nothing happens and reports embed the whole bundle.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

PACKAGE = "plotly.js-basic-dist-min"
VERSION = "4.1.1"
SHA512 = "1oNF8PeQx2hv/y7tqEVWKD3JGwn/MGEMQ8mL9HUwsaqG9FGy/OU5FHUHvzqbqxN4mnwZGI9abTiE775C4kkjMQ=="
MEMBER = "package/plotly-basic.min.js"
ASSETS = Path(__file__).resolve().parents[1] / "src" / "isocompute" / "report" / "assets"


def script_of(archive: bytes) -> bytes:
    """The bundle inside the package, whose hash must be the one pinned here."""
    found = base64.b64encode(hashlib.sha512(archive).digest()).decode()
    if found != SHA512:
        raise SystemExit(
            f"{PACKAGE} {VERSION} must have the SHA-512 {SHA512}, but got {found}; nothing kept."
        )
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        member = tar.extractfile(MEMBER)
        assert member is not None
        return member.read()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--force", action="store_true", help="fetch it again")
    options = parser.parse_args()
    target = ASSETS / "plotly-basic.min.js"
    if target.exists() and not options.force:
        return 0
    npm = shutil.which("npm")
    if npm is None:
        print("npm was not found: reports embed the whole Plotly bundle", file=sys.stderr)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [npm, "pack", "--silent", f"{PACKAGE}@{VERSION}"],
            cwd=folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
        archives = list(Path(folder).glob("*.tgz"))
        if done.returncode or not archives:
            print("npm could not fetch it: reports embed the whole Plotly bundle", file=sys.stderr)
            return 0
        target.write_bytes(script_of(archives[0].read_bytes()))
    print(f"{target.name}: {target.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
