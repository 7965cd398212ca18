"""Hooks of mkdocs: search works on pages that are opened from a folder, and loads nothing.

A browser starts no web worker for a page of a folder. Material's offline plugin therefore loads a
stand-in from another site; this puts a stand-in of ours into the page instead.
"""

from __future__ import annotations

from typing import Any

_THEIRS = '<script src="https://unpkg.com/iframe-worker/shim"></script>'
# A hidden frame runs the script of the worker: its messages go to the page and back.
_OURS = """<script>
if (location.protocol === "file:") window.Worker = class extends EventTarget {
  constructor(url) {
    super();
    const frame = document.body.appendChild(document.createElement("iframe"));
    frame.hidden = true;
    const send = frame.contentWindow.postMessage.bind(frame.contentWindow);
    this.ready = new Promise((done) => {
      const inner = frame.contentDocument;
      inner.open();
      inner.write("<script>postMessage = parent.postMessage.bind(parent)<\\/script>");
      const script = inner.createElement("script");
      script.src = url;
      script.onload = () => done(send);
      inner.head.append(script);
      inner.close();
    });
    addEventListener("message", (said) => {
      if (said.source === frame.contentWindow)
        this.dispatchEvent(new MessageEvent("message", { data: said.data }));
    });
  }
  postMessage(data) { this.ready.then((send) => send(data, "*")); }
};
</script>"""


def on_post_page(output: str, **_: Any) -> str:
    """Replace the stand-in of every page."""
    return output.replace(_THEIRS, _OURS)


def on_post_template(output_content: str, **_: Any) -> str:
    """The same for pages that the theme makes by itself."""
    return output_content.replace(_THEIRS, _OURS)
