// SPDX-License-Identifier: Apache-2.0
// The TOML file of right launchers, and changes of its text.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "tests/support/paths.h"

namespace ampcheck::checks {

inline const std::string kFolder = tests::in_build("/custom_ops/");
inline const std::string kLibrary = "./rms_norm_launchers.so";

inline std::string right_text() {
  std::ifstream in(kFolder + "rms_norm_launchers.toml");
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

/// The right file with a text replaced, which has to be there.
inline std::string changed(const std::string& from, const std::string& to) {
  std::string text = right_text();
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  for (std::size_t k = at; k != std::string::npos; k = text.find(from, k + to.size())) text.replace(k, from.size(), to);
  return text;
}

}  // namespace ampcheck::checks
