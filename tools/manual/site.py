# SPDX-License-Identifier: Apache-2.0
"""python3 tools/manual/site.py PROGRAM FOLDER: the manual as a static site.

The pages come from `PROGRAM explain PAGE --format html`. Each becomes FOLDER/PAGE.html; index.html leads to all.
The site loads nothing from elsewhere and works from the disk. Its search looks at every section of every page."""
import html
import json
import pathlib
import re
import subprocess
import sys

STYLE = """
:root { --ink: #1d2126; --soft: #5b6470; --line: #d8dde3; --back: #ffffff; --code: #f4f6f8; --link: #0b5cad; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e7eb; --soft: #9aa4b0; --line: #3a424c; --back: #16191d; --code: #20252b; --link: #7ab8ff; } }
* { box-sizing: border-box; }
body { margin: 0; font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--back); display: flex; }
nav { width: 16rem; flex: none; padding: 1.2rem; border-right: 1px solid var(--line); height: 100vh; position: sticky; top: 0; overflow: auto; }
nav a { display: block; padding: .15rem 0; } nav a.here { font-weight: 600; color: var(--ink); }
main { flex: 1; min-width: 0; max-width: 62rem; padding: 1.2rem 2.4rem 4rem; }
a { color: var(--link); text-decoration: none; } a:hover { text-decoration: underline; }
h1 { font-size: 1.7rem; line-height: 1.25; } h2 { margin-top: 2.2rem; border-bottom: 1px solid var(--line); font-size: 1.25rem; }
pre { background: var(--code); padding: .8rem 1rem; overflow-x: auto; font-size: .83rem; line-height: 1.45; border-radius: 4px; }
code { background: var(--code); padding: .05rem .3rem; border-radius: 3px; font-size: .9em; }
table { border-collapse: collapse; display: block; overflow-x: auto; } td, th { border: 1px solid var(--line); padding: .3rem .7rem; text-align: left; vertical-align: top; }
.item { display: flex; gap: .6rem; margin: .35rem 0 .35rem calc((var(--level) - 1) * 1.2rem); }
input { width: 100%; padding: .45rem .6rem; font: inherit; color: inherit; background: var(--code); border: 1px solid var(--line); border-radius: 4px; }
#found a { padding: .4rem 0; border-bottom: 1px solid var(--line); } #found small { display: block; color: var(--soft); overflow-wrap: anywhere; }
@media (max-width: 50rem) { body { display: block; } nav { width: auto; height: auto; position: static; border: 0; } main { padding: 1rem; } }
"""

# Every word of the query has to stand in a section; sections whose heading has them come first.
SEARCH = """
const box = document.getElementById('search'), found = document.getElementById('found'), pages = document.getElementById('pages');
function look() {
  const words = box.value.toLowerCase().split(/\\s+/).filter(w => w);
  found.replaceChildren(); pages.hidden = words.length > 0;
  if (!words.length) return;
  const hits = [];
  for (const s of INDEX) {
    const head = s.title.toLowerCase(), text = s.text.toLowerCase();
    if (!words.every(w => head.includes(w) || text.includes(w))) continue;
    hits.push([words.filter(w => head.includes(w)).length, s, text.indexOf(words[0])]);
  }
  hits.sort((a, b) => b[0] - a[0]);
  for (const [, s, at] of hits.slice(0, 30)) {
    const link = document.createElement('a'), small = document.createElement('small');
    link.href = s.page + '.html#' + s.anchor; link.textContent = s.title;
    small.textContent = s.text.slice(Math.max(0, at - 30), Math.max(0, at - 30) + 110);
    link.append(small); found.append(link);
  }
  if (!hits.length) found.textContent = 'Nothing found.';
}
box.addEventListener('input', look);
box.value = new URLSearchParams(location.search).get('q') || ''; look();
"""

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title} - ampcheck</title><link rel="stylesheet" href="style.css"></head>
<body><nav><input id="search" type="search" placeholder="Search" aria-label="Search"><div id="found"></div><div id="pages">{nav}</div></nav>
<main>{body}</main><script src="index.js"></script><script src="search.js"></script></body></html>
"""


def text_of(fragment):
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", fragment))).strip()


def sections_of(page, body):
    """A page in parts, each from a heading to the next."""
    parts = re.split(r'<h[1-6] id="([^"]*)">(.*?)</h[1-6]>', body)
    for anchor, title, rest in zip(parts[1::3], parts[2::3], parts[3::3]):
        yield {"page": page, "anchor": anchor, "title": text_of(title), "text": text_of(rest)}


def main(program, folder):
    def explain(*words):
        return subprocess.run([program, "explain", *words], check=True, capture_output=True, encoding="utf-8").stdout

    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    topics = [(t["name"], t["title"]) for t in json.loads(explain("--json"))["topics"]]
    bodies = {name: explain(name, "--format", "html") for name, _ in topics}
    listed = "".join(f'<tr><td><a href="{n}.html">{n}</a></td><td>{html.escape(t)}</td></tr>\n' for n, t in topics)
    bodies["index"] = f'<h1 id="ampcheck">ampcheck</h1>\n<p>This low-precision number differs from the reference. Is it wrong, or only rounded?</p>\n<table>{listed}</table>\n'
    if (folder / "api" / "index.html").exists():
        bodies["index"] += '<p>The reference of the C and C++ headers: <a href="api/index.html">API</a>.</p>\n'
    titles = dict(topics, index="Manual")
    for name, body in bodies.items():
        nav = "".join(f'<a href="{n}.html"{" class=here" if n == name else ""}>{n}</a>' for n in ["index", *dict(topics)])
        (folder / f"{name}.html").write_text(PAGE.format(title=html.escape(titles[name]), nav=nav, body=body), "utf-8")
    index = [section for name, _ in topics for section in sections_of(name, bodies[name])]
    (folder / "index.js").write_text("const INDEX = " + json.dumps(index, ensure_ascii=False) + ";\n", "utf-8")
    (folder / "search.js").write_text(SEARCH, "utf-8")
    (folder / "style.css").write_text(STYLE, "utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("site.py: want the program and a folder")
    main(sys.argv[1], sys.argv[2])
