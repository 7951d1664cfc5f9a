// SPDX-License-Identifier: Apache-2.0
// C++ and CUDA source as tokens, as far as small changes of it need: no comments, no text, no preprocessor lines.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace ampcheck::tools {

struct SourceToken {
  enum class Kind { word, number, sign } kind = Kind::sign;
  std::string_view text;   ///< in the source
  std::size_t offset = 0;  ///< of its first byte
  std::size_t end() const { return offset + text.size(); }
  bool is(std::string_view other) const { return text == other; }
};

/// Tokens in their order. Text and character literals are signs of one token: '"..."'.
std::vector<SourceToken> tokens_of(std::string_view source);

/// For each token the place of its partner among ( ), [ ] and { }; its own place where there is none.
std::vector<std::size_t> partners_of(const std::vector<SourceToken>& tokens);

/// For each token whether it stands in code that runs as a kernel: in a body of a function, but not in the description
/// of an op (AMPCHECK_OP beside its kernels, ampcheck_plugin_v1).
std::vector<bool> kernel_code(const std::vector<SourceToken>& tokens, const std::vector<std::size_t>& partners);

}  // namespace ampcheck::tools
