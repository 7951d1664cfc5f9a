// SPDX-License-Identifier: Apache-2.0
// A training log, read: of each line that says something of the loss scale, the numbers that it says.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ampcheck::checks::scaler {

/// What a line of a log may say.
enum class Quantity : std::uint8_t {
  step,
  epoch,      ///< with `per_epoch` the step is one within its epoch
  per_epoch,  ///< steps of an epoch
  rank,
  scaler,     ///< number of a loss scaler, where a run has several
  scale,      ///< in force after the step
  attempted,  ///< in force in the step
  reduced,    ///< after an overflow
  hysteresis,
  skipped,        ///< of this step: not 0 where it was skipped
  stepped,        ///< of this step: 0 where it was skipped
  skipped_here,   ///< skipped steps since the line before
  skipped_total,  ///< since the run began
  nan_here,       ///< steps with a NaN since the line before
  loss,
  norm,
  mean_norm,  ///< averaged over many steps
  lr,
  samples,
  clean_count,  ///< the scaler's own count of clean steps
  bad_count,    ///< and of overflows that follow one another
};
inline constexpr std::size_t kQuantities = 21;

/// What a line is, beside its numbers.
enum class Event : std::uint8_t {
  none,
  skip,        ///< this step was skipped
  moved,       ///< the scale moved, as a line before or behind it says
  at_floor,    ///< the run ended since the scale could not be lowered
  checkpoint,  ///< one was saved
  nan,         ///< a NaN was found
};

/// How lines of one kind look. A further framework is one more row in log_grammars.cpp and a line of it as its example.
struct Grammar {
  struct Field {
    Quantity quantity;
    const char* before;  ///< what stands before the number; "a*b": a, then anywhere behind it b; "^": the line begins
    bool must = false;   ///< a line without it was cut off
  };
  const char* name;
  const char* framework;
  const char* rule;    ///< the scale rule of that framework; empty: none of its own
  const char* anchor;  ///< every such line holds it, and no other line
  Event event;
  bool averages;  ///< its norm is a mean over the lines' interval
  std::vector<Field> fields;
  const char* example;
};
const std::vector<Grammar>& log_grammars();

/// One line's numbers, those that it has in the order of Quantity.
class Reading {
 public:
  std::int64_t line = 0;  ///< from 1
  int grammar = -1;       ///< of log_grammars(); -1: named columns
  Event event = Event::none;

  bool has(Quantity q) const { return (mask_ >> static_cast<unsigned>(q) & 1u) != 0; }

 private:
  friend struct Log;
  std::uint32_t mask_ = 0;
  std::size_t first_ = 0;
};

/// The numbers of one line while it is read.
struct Found {
  std::array<double, kQuantities> value;
  std::uint32_t mask = 0;
  Event event = Event::none;
  int grammar = -1;

  bool has(Quantity q) const { return (mask >> static_cast<unsigned>(q) & 1u) != 0; }
  double operator[](Quantity q) const { return value[static_cast<std::size_t>(q)]; }
  void set(Quantity q, double number) {
    value[static_cast<std::size_t>(q)] = number;
    mask |= 1u << static_cast<unsigned>(q);
  }
};

/// An error or warning of torch about a scaler.
struct Refusal {
  const char* message;  ///< a line holds it
  const char* means;
  const char* cure;
  bool ends = true;  ///< the run; else a warning
};
std::span<const Refusal> refusals();

struct Log {
  std::vector<Reading> readings;
  std::int64_t lines = 0;
  std::map<int, std::int64_t> by_grammar;  ///< lines of each; -1: of named columns
  std::string columns;                     ///< "CSV", "JSON lines", "trace of ampcheck", or empty
  std::string rule;                        ///< that a trace of ours names
  /// Lines that begin as a known kind and lack what each such line has.
  std::vector<std::int64_t> torn;
  std::int64_t unread = 0;           ///< lines that no grammar knows
  std::int64_t first_unread = 0;     ///< the first of them
  std::string unread_text;           ///< its beginning
  bool cut_off = false;              ///< the file ends within a line
  const Refusal* refusal = nullptr;  ///< the first that ends the run, else the first
  std::int64_t refused_at = 0;       ///< its line

  void add(const Found& found, std::int64_t line);
  std::optional<double> get(const Reading& r, Quantity q) const {
    if (!r.has(q)) return std::nullopt;
    const std::uint32_t below = r.mask_ & ((1u << static_cast<unsigned>(q)) - 1u);
    return values_[r.first_ + static_cast<std::size_t>(std::popcount(below))];
  }

 private:
  std::vector<double> values_;
};

/// Column names of the user's own: "gs" -> Quantity::scale.
using ColumnNames = std::map<std::string, Quantity>;
/// "scale", "step", ...: what `--columns` may name. None if there is no such quantity.
std::optional<Quantity> find_quantity(std::string_view name);
/// All of them, "step, scale, ...".
std::string quantity_names();

/// Reads a whole log: console lines of any mix of frameworks, a CSV with a header, JSON lines, or a trace of ours.
Log read_log(std::string_view text, const ColumnNames& columns = {});

}  // namespace ampcheck::checks::scaler
