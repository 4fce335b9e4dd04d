"""Opens every page of the built site in Chromium and names those that scroll sideways or have a dead link.

    mkdocs build --strict && python tools/checks/check_site.py build/site

Pages are shown 390 and 1280 px wide, in a frame of a page on the loopback. Needs Chromium (`chromium` on the path).
"""

import functools
import html
import http.server
import json
import re
import subprocess
import sys
import threading
from pathlib import Path

WIDTHS = (390, 1280)
MEASURE = """<body><pre id="found">unfinished</pre><script>
const found = [];
function shown(address, width) {
  return new Promise(done => {
    const frame = document.createElement("iframe");
    frame.style.cssText = `width:${width}px;height:800px;border:0`;
    frame.onload = () => setTimeout(() => {
      const page = frame.contentDocument;
      const links = width === 390 ? [...page.querySelectorAll("a[href]")].map(link => link.href) : [];
      found.push({address, width, wide: page.documentElement.scrollWidth, links});
      frame.remove();
      done();
    }, 300);
    frame.src = address;
    document.body.append(frame);
  });
}
(async () => {
  for (const width of WIDTHS) for (const address of PAGES) await shown(address, width);
  document.getElementById("found").textContent = JSON.stringify(found);
})();
</script>"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def measured(site: Path, pages: list[str]) -> list[dict]:
    """Return for every page and width how wide the page is, and its links."""
    script = MEASURE.replace("WIDTHS", json.dumps(WIDTHS)).replace("PAGES", json.dumps(pages))
    (site / "measure.html").write_text(script, encoding="utf8")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/measure.html"
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1400,1000", "--timeout=600000"]
    options += ["--virtual-time-budget=600000", "--dump-dom"]
    try:
        dom = subprocess.run(["chromium", *options, address], capture_output=True, text=True, check=True).stdout
    finally:
        server.shutdown()
        (site / "measure.html").unlink()
    return json.loads(html.unescape(re.search(r'<pre id="found">(.*?)</pre>', dom, re.DOTALL)[1]))


def dead(site: Path, link: str) -> bool:
    """Return whether a link within the site leads nowhere: no such file, or no such place on its page."""
    path, _, anchor = re.sub(r"^http://127\.0\.0\.1:\d+/", "", link).partition("#")
    file = site / path.partition("?")[0]
    file = file / "index.html" if file.is_dir() else file
    if not file.is_file():
        return True
    return bool(anchor) and file.suffix == ".html" and not re.search(
        rf"""(id|name)=["']?{re.escape(anchor)}["'>\\s]""", file.read_text(encoding="utf8")
    )  # fmt: skip


def main(site: Path) -> int:
    pages = sorted(str(path.relative_to(site)) for path in site.rglob("*.html") if path.name != "404.html")
    found = measured(site, pages)
    wide = [
        f"{page['address']}: {page['wide']} px wide in {page['width']}"
        for page in found
        if page["wide"] > page["width"]
    ]
    links = {(page["address"], link) for page in found for link in page["links"] if "://127.0.0.1" in link}
    broken = [f"{page}: {link} leads nowhere" for page, link in sorted(links) if dead(site, link)]
    print("\n".join([*wide, *broken, f"{len(pages)} pages, {len(links)} links: {len(wide)} wide, {len(broken)} dead."]))
    return int(bool(wide or broken))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
