// SPDX-License-Identifier: Apache-2.0
// What a library describes, on its way from the process that loaded it to those that judge and report: they have the
// description and nothing of the library.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "checks/doors/plugin.h"

namespace ampcheck::tools {

/// The description of a library that was loaded here, without the ops that are refused. Of each function only whether
/// there is one.
std::string description_bytes(const checks::Plugin& plugin);

/// A description that was read. What it says is as hostile as the library: checks::ops_of checks it.
class Description {
 public:
  /// Throws Error for bytes that are none.
  explicit Description(std::string_view bytes);
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;

  /// Lives as long as this. Its kernels return an error.
  const ac_plugin* plugin() const { return &plugin_; }

 private:
  class Reading;

  /// Where the description points to; a deque: addresses stay.
  template <class T>
  using Arrays = std::deque<std::vector<T>>;
  struct Memory {
    std::deque<std::string> texts;
    Arrays<double> numbers;
    Arrays<std::int32_t> types;
    Arrays<ac_input> inputs;
    Arrays<ac_output> outputs;
    Arrays<ac_attribute> attributes;
    Arrays<ac_dim> dims;
    Arrays<ac_form> forms;
    Arrays<ac_kink> kinks;
    Arrays<ac_extension> extensions;
    Arrays<ac_variant> variants;
    std::deque<ac_contract> contracts;
    std::deque<ac_math> maths;
    std::deque<ac_double_backward> double_backwards;
    std::deque<ac_variants> variant_lists;
    std::deque<ac_source> sources;
  };

  Memory memory_;
  std::vector<ac_op> ops_;
  ac_plugin plugin_ = {};
};

}  // namespace ampcheck::tools
