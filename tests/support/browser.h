// SPDX-License-Identifier: Apache-2.0
// A page in a real browser without a display: what it laid out, what it said, and a picture of it.
#pragma once

#include <string>

namespace ampcheck::testing {

/// The browser's program; empty where there is none.
std::string browser();
inline constexpr const char* kNoBrowser = "no chromium, chromium-browser, google-chrome or chrome on PATH";

enum class Scheme { light, dark };

/// What the browser made of a page, and what it said of it.
struct Seen {
  std::string page, log;
  int exit_code = 0;
  /// A count of the probe's; -1 if there is none.
  int count(const std::string& what) const;
  /// A text of the probe's.
  std::string text(const std::string& what) const;
};

/// Opens the text of a page, 1,200 pixels wide. The page's policy lets no probe run: it goes where one is asked for,
/// and what the page loads is then loaded. `folder` holds what the browser needs.
Seen open_page(const std::string& folder, std::string html, bool probed = true, Scheme scheme = Scheme::light);

/// A picture of the page as it is, policy and all; `page` of the result is a PNG.
Seen picture_of(const std::string& folder, const std::string& html, Scheme scheme);

}  // namespace ampcheck::testing
