// SPDX-License-Identifier: Apache-2.0
#include "tests/support/browser.h"

#include <filesystem>
#include <fstream>
#include <regex>
#include <string_view>

#include "tests/support/run_program.h"

namespace ampcheck::testing {

namespace {

/// Counts what the browser laid out, and what went wrong, into the text of the page. Contrast is WCAG 2.2's, of each
/// text with the nearest background behind it, in hundredths; of a drawing's text with the page's.
constexpr const char* kProbe = R"(<script>
window.errors = 0; addEventListener('error', () => ++errors, true);
addEventListener('load', () => {
  for (const d of document.querySelectorAll('details')) d.open = true;
  const drawn = e => { const b = e.getBoundingClientRect(), s = getComputedStyle(e); return b.width * b.height > 0 && s.visibility === 'visible' && s.fill !== 'none'; };
  const counts = {plots: 0, empty: 0, lines: 0, rects: 0, texts: 0};
  for (const svg of document.querySelectorAll('svg')) {
    const lines = [...svg.querySelectorAll('path')].filter(p => p.getTotalLength() > 0 && getComputedStyle(p).stroke !== 'none').length;
    const rects = [...svg.querySelectorAll('rect')].filter(drawn).length;
    counts.plots += 1; counts.lines += lines; counts.rects += rects; counts.empty += lines + rects === 0;
    counts.texts += [...svg.querySelectorAll('text')].filter(t => t.getComputedTextLength() > 0).length;
  }
  counts.loaded = performance.getEntriesByType('resource').length; counts.errors = errors;
  const root = document.documentElement;
  counts.width = root.clientWidth; counts.beyond = Math.max(0, root.scrollWidth - root.clientWidth);
  const rgba = c => { const n = c.match(/[\d.]+/g).map(Number); return n.length > 3 ? n : [...n, 1]; };
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).reduce((s, v, i) => s + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = e => { for (; e; e = e.parentElement) { const c = rgba(getComputedStyle(e).backgroundColor); if (c[3] > 0) return c; } return [255, 255, 255, 1]; };
  counts.paper = Math.round(100 * light(behind(document.body)));
  counts.contrast = 2100; counts.words = 0; let worst = '';
  for (const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT); walk.nextNode();) {
    const e = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || ['SCRIPT', 'STYLE', 'title'].includes(e.tagName) || !e.getClientRects().length) continue;
    const style = getComputedStyle(e), paper = behind(e), own = rgba(e instanceof SVGElement ? style.fill : style.color);
    const ink = own.slice(0, 3).map((v, i) => own[3] * v + (1 - own[3]) * paper[i]);
    const [low, high] = [light(ink), light(paper)].sort((a, b) => a - b), ratio = Math.floor(100 * (high + 0.05) / (low + 0.05));
    counts.words += 1;
    if (ratio < counts.contrast) { counts.contrast = ratio; worst = walk.currentNode.data.trim().slice(0, 60).replace(/[^ -~]|[<>&;]/g, '?'); }
  }
  const out = document.createElement('pre');
  out.textContent = Object.entries({...counts, faintest: worst}).map(([k, v]) => `probe ${k}=${v};`).join(' ');
  document.body.append(out);
});
</script>)";

constexpr const char* kPolicy =
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">";

std::string quoted(const std::string& word) { return "'" + word + "'"; }

/// The browser with `arguments` on the text of a page.
ProgramResult opened(const std::string& folder, const std::string& html, Scheme scheme, const std::string& arguments) {
  std::ofstream(folder + "/opened.html") << html;
  return shell("timeout 100 " + browser() +
               " --headless --no-sandbox --disable-gpu --no-first-run --hide-scrollbars --window-size=1200,2400 "
               "--blink-settings=preferredColorScheme=" +
               (scheme == Scheme::dark ? "0" : "1") +
               " --host-resolver-rules='MAP * ~NOTFOUND' --enable-logging=stderr --user-data-dir=" +
               quoted(folder + "/profile") + " " + arguments + " " + quoted("file://" + folder + "/opened.html"));
}

}  // namespace

std::string browser() {
  std::string found =
      shell("for b in chromium chromium-browser google-chrome chrome; do command -v $b && break; done; true").out;
  while (found.ends_with('\n')) found.pop_back();
  return found;
}

int Seen::count(const std::string& what) const {
  std::smatch found;
  return std::regex_search(page, found, std::regex("probe " + what + "=([0-9]+);")) ? std::stoi(found[1]) : -1;
}

std::string Seen::text(const std::string& what) const {
  std::smatch found;
  return std::regex_search(page, found, std::regex("probe " + what + "=([^;]*);")) ? std::string(found[1]) : "";
}

Seen open_page(const std::string& folder, std::string html, bool probed, Scheme scheme) {
  if (probed) {
    const std::size_t policy = html.find(kPolicy);
    if (policy != std::string::npos) html.erase(policy, std::string_view(kPolicy).size());
    html.insert(html.find("</head>"), kProbe);
  }
  const ProgramResult run = opened(folder, html, scheme, "--dump-dom");
  return {run.out, run.err, run.exit_code};
}

Seen picture_of(const std::string& folder, const std::string& html, Scheme scheme) {
  const std::string picture = folder + "/picture.png";
  std::filesystem::remove(picture);
  const ProgramResult run = opened(folder, html, scheme, "--screenshot=" + quoted(picture));
  return {std::filesystem::exists(picture) ? read_text(picture) : "", run.err, run.exit_code};
}

}  // namespace ampcheck::testing
