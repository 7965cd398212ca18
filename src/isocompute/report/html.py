"""One self-contained HTML file: template, style, script, Plotly and the data, and a strict policy.

What keeps the page safe, whatever the names in the data are:
- a content security policy that lets exactly two scripts run (by their hashes), loads nothing
  from anywhere, and has no `unsafe-eval`. Inline *styles* stay allowed, because Plotly positions
  its drawing with them; a style cannot run code, and nothing external can be fetched by one;
- data travel as JSON in a data block with `<`, `>`, `&` and the line separators escaped, and the
  script sets every text by `textContent`; no text of a user reaches Plotly, which reads mark-up;
- the template escapes everything (jinja2 autoescape).
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
from markupsafe import Markup, escape

from isocompute import __version__
from isocompute.answers.logged import as_logged
from isocompute.domain.text import plain, visible
from isocompute.errors import InputError
from isocompute.files import write_text
from isocompute.report import sections, words
from isocompute.report.first_screen import answer, page_title
from isocompute.report.payload import TEXT_LIMIT, page_payload
from isocompute.report.study_data import StudyView, study_view
from isocompute.report.thumbnail import picture

if TYPE_CHECKING:
    from isocompute.answers.fit import Fit
    from isocompute.store import Store


SMALL_BUNDLE = "plotly-basic.min.js"


def render_report(
    fits: Sequence[tuple[str, Fit]],
    plan: dict[str, Any] | None,
    path: str | Path,
    *,
    study: Store | StudyView | str | Path | None = None,
    title: str | None = None,
    now: datetime.datetime | None = None,
) -> Path:
    """Write the report of one or several fits.

    Args:
        fits: (name, fit); the report is about the first; the others are for comparison.
        plan: the `plan --json` document, or None: the first screen then shows the best n.
        path: the HTML file to write; its folder is made. Written whole or not at all.
        study: the study behind the first fit (folder, store or view), for health, accounting,
            landscapes and the train-test gap.
        title: heading of the page; None: model, data and metric, as far as they are known.
        now: date on the page; None: the present (UTC).

    Returns:
        The path written.

    Raises:
        InputError: if there is nothing to report (no fit, no plan and no study), or the file
            cannot be written.
    """
    if not fits and plan is None and study is None:
        raise InputError(
            "a report needs at least one of fit, plan and study, but got none; "
            "name a SOURCE, for example published:qwen2.5-7b-easy."
        )
    view = study_view(study) if study is not None else None
    payload = page_payload(fits, plan, view)
    scripts = {"plotly": plotly_script(), "page": _asset("report.js")}
    policy = content_security_policy(scripts.values())
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("isocompute.report", "assets"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters.update(prose=prose)
    moment = now or datetime.datetime.now(datetime.UTC)
    html = environment.get_template("report.html.j2").render(
        title=visible(title or page_title(fits, view)),
        policy=policy,
        css=_asset("report.css"),
        scripts=scripts,
        data=json_for_html(payload),
        version=__version__,
        date=moment.strftime("%Y-%m-%d %H:%M UTC"),
        **plain_context(fits, plan, view),
    )
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_text(target, html)
    except OSError as error:
        raise InputError(
            f"a report must be written to a file, but {str(target)!r} gives {error.strerror}; "
            "name another."
        ) from error
    return target


def plain_context(
    fits: Sequence[tuple[str, Fit]], plan: dict[str, Any] | None, view: StudyView | None
) -> dict[str, Any]:
    """What the template writes as words and tables, every text made visible."""
    hidden: dict[str, Any] = words.redact(plan) if plan is not None else {}
    thumbnail = picture(fits[0][1], as_logged(hidden) or None) if fits else None
    notices = sections.notices(fits, hidden or None, view)
    cautions = sum(len(group["rows"]) for group in notices if group["level"] == "caution")
    context: dict[str, Any] = plain(
        {
            "answer": answer(
                as_logged(fits[0][1].document) if fits else None,
                hidden or None,
                thumbnail,
                cautions,
            ),
            "fits": [
                sections.fit_section(name, fit, None if i or not hidden else as_logged(hidden))
                for i, (name, fit) in enumerate(fits)
            ],
            "notices": notices,
            "provenance": sections.provenance(fits, view),
            "study": _with_content(sections.study_section(view), alone=not fits),
        },
        TEXT_LIMIT,
    )
    return context


def _with_content(study: dict[str, Any] | None, *, alone: bool) -> dict[str, Any] | None:
    """The section of a study; None beside a fit, where it would be a heading above nothing."""
    said = ("name", "problem_set", "scores_at", "run_time", "spent")
    filled = study is not None and any(v for key, v in study.items() if key not in said)
    return study if alone or filled else None


def prose(text: object) -> Markup:
    """Escaped text in which `commands` stand as code, and B_p as it is set elsewhere.

    >>> str(prose("Run `a < b` at B_p = 8."))
    'Run <code>a &lt; b</code> at Bₚ = 8.'
    """
    parts = str(text).split("`")
    if len(parts) % 2 == 0:  # a lone backtick is no mark-up
        parts = [str(text)]
    marked = (
        Markup("<code>{}</code>").format(part) if i % 2 else escape(part.replace("B_p", "Bₚ"))
        for i, part in enumerate(parts)
    )
    return Markup("").join(marked)


def json_for_html(value: Any) -> str:
    r"""JSON that can stand inside a script element of any HTML parser.

    >>> json_for_html({"a": "</script>&"})
    '{"a":"\\u003c/script\\u003e\\u0026"}'
    """
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    for char in "<>&":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def content_security_policy(scripts: Any) -> str:
    """A policy under which these scripts and nothing else run, and nothing is fetched."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'"
        for s in scripts
    )
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def plotly_script() -> str:
    """Plotly's own bundle, as it is: the small one if it was fetched, else that of the wheel.

    `scripts/fetch_plotly.py` fetches the small one (lines and bars), which no Python package ships.

    Raises:
        InputError: if the bundle could not stand inside a script element.
    """
    small = resources.files("isocompute.report") / "assets" / SMALL_BUNDLE
    if small.is_file():
        return _embeddable(small.read_text("utf-8"), SMALL_BUNDLE)
    text = (resources.files("plotly") / "package_data" / "plotly.min.js").read_text("utf-8")
    return _embeddable(text, "plotly.min.js")


def _asset(name: str) -> str:
    text = (resources.files("isocompute.report") / "assets" / name).read_text("utf-8")
    return _embeddable(text, name)


def _embeddable(text: str, name: str) -> str:
    # The parser turns CR LF into LF before it hashes, and these two end or hide a script.
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "</script" in text.lower() or "<!--" in text:
        raise InputError(
            f"an embedded file must hold neither '</script' nor '<!--', but {name} does; "
            "install another version of plotly."
        )
    return text
