// SPDX-License-Identifier: Apache-2.0
// The words of a PTX text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ampcheck::ptx {

struct Token {
  enum class Kind { word, number, text, mark, end };
  Kind kind = Kind::end;
  std::string_view text;  ///< of a string, without its quotes
  int line = 0;
};

/// The last token is an end. A word begins with a letter or one of _ $ % . and goes on with these and digits, so that
/// "ld.global.f32", "%tid.x" and ".reg" are one word each. Throws PtxError for a character that no PTX holds.
std::vector<Token> tokens_of(std::string_view text, const std::string& path);

[[noreturn]] void fail(const std::string& path, int line, const std::string& what);

}  // namespace ampcheck::ptx
