// SPDX-License-Identifier: Apache-2.0
// What other tools recorded of a run, op by op: numbers about tensors, not the tensors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ampcheck::checks::stacks {

/// What a recording says of one tensor.
struct TensorNumbers {
  std::string name;   ///< "input.0", "output.0", "weight"
  std::string dtype;  ///< "bf16", "fp16", "fp32"; empty where it is not said
  std::string shape;
  std::optional<double> least, largest, mean, norm;
  bool sizes = false;    ///< `least` and `largest` are of |x|
  std::string hash;      ///< digest or L1 norm, as it was printed
  std::string producer;  ///< of an input: the op that it comes from

  bool not_finite() const;
  /// The largest |x|, if the recording says it.
  std::optional<double> amax() const;
};

struct OpRecord {
  std::string name, where;  ///< where: file and line of the model's source
  bool backward = false;
  std::int64_t line = 0;
  std::vector<TensorNumbers> inputs, outputs;
};

/// A recording of any tool. A further one is one more reader in read_records().
struct Recording {
  std::string path, tool;
  std::string precision;      ///< of its numbers: "7 significant digits"
  double relative = 0;        ///< numbers nearer than that share of each other are printed alike
  std::vector<OpRecord> ops;  ///< in the order in which they ran
  std::vector<std::string> notes;
};

/// Reads msprobe's dump.json, torchtitan's activations.log, or what Hugging Face's DebugUnderflowOverflow printed.
/// Nothing if the text is none of them. Throws Error for one that is damaged.
std::optional<Recording> read_records(std::string_view text, const std::string& path);

/// What is wrong in one recording.
enum class Trouble : std::uint8_t { none, near_range, all_zero, came_in, made };
const char* name(Trouble trouble);

struct RecordFinding {
  Trouble trouble = Trouble::none;
  std::string op, tensor, what;  ///< the first op, what its numbers are
  std::int64_t line = 0;
  std::vector<std::string> before;   ///< the ops before it: how the numbers grew
  std::vector<std::string> killers;  ///< ops that got a number that is not finite and gave finite ones
  std::string excluded, next;        ///< what it is not; what to record or try next
};
RecordFinding judge_records(const Recording& recording);

/// Two recordings of the same ops.
struct RecordPair {
  std::string name, where;
  bool in_both = true;
  bool inputs_known = false, inputs_alike = false, outputs_alike = false;
  double in_apart = 0, out_apart = 0;  ///< largest relative distance of their numbers
  std::string what;                    ///< the number that is furthest apart: "norm 12.1 against 12.3"
  std::string dtype_a, dtype_b;
};
struct RecordComparison {
  std::vector<RecordPair> ops;
  std::vector<std::string> only_a, only_b;
  /// The first op with inputs alike and outputs not; -1 if there is none.
  std::ptrdiff_t first_made = -1;
  /// Where inputs differ already: the op at which numbers move apart most.
  std::ptrdiff_t largest_jump = -1;
  bool dtypes_differ = false;
};
RecordComparison compare_records(const Recording& a, const Recording& b);

/// Readers, each null for another tool's text.
std::optional<Recording> read_msprobe(std::string_view text, const std::string& path);
std::optional<Recording> read_torchtitan(std::string_view text, const std::string& path);
std::optional<Recording> read_overflow_frames(std::string_view text, const std::string& path);

/// A line of the text without its end, from `at` on; `at` moves behind it. Nothing at the end.
std::optional<std::string_view> next_line(std::string_view text, std::size_t& at);
std::string_view trimmed(std::string_view text);
/// A number as tools print it, "nan" and "inf" too; nothing for anything else.
std::optional<double> number_in(std::string_view text);
/// "bf16" of "torch.bfloat16", "Float16" and the like; empty for others.
std::string short_dtype(std::string_view name);
/// The number with at most six digits.
std::string shown(double value);

}  // namespace ampcheck::checks::stacks
