// SPDX-License-Identifier: Apache-2.0
// Holds a run in fp8 to its recipe: which format, which scale, which codes, and which numbers a product reads. The
// largest magnitudes are followed here once more, apart from the run's own history.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "checks/train/fp8.h"
#include "checks/train/live.h"

namespace ampcheck::checks::train {

/// Where a run leaves the recipe.
struct Fp8Departure {
  enum class Kind : std::uint8_t {
    format,   ///< a gradient in the forward's format, or the other way round
    stale,    ///< scales of earlier steps, which no longer move or come too late
    history,  ///< scales of an amax history of another length
    margin,   ///< scales of another margin
    scale,    ///< other scales, and it is not known which
    inverse,  ///< what is read was multiplied by the scale, or not divided
    codes,    ///< not the nearest number of the format
  };
  Kind kind = Kind::codes;
  int step = 0;  ///< the first
  std::string op, layer, tensor;
  std::string what;         ///< the evidence
  int tensors = 1, of = 1;  ///< how many leave it in that way
  std::string where() const;
};

/// What the format took from a tensor over the run.
struct Fp8Loss {
  std::string op, layer, tensor;
  Dtype dtype = Dtype::e4m3fn;
  std::int64_t elements = 0, saturated = 0, zeros = 0;  ///< finite ones beyond the largest number; lost to zero
  int steps = 0, worst_step = -1;                       ///< of worst_step the largest share
  double worst_saturated = 0, worst_zero = 0;           ///< share of saturated; largest share of zeros
  double worst_amax = 0, worst_room = 0;                ///< |x| then, and the largest that its scale holds
};

class Fp8Check {
 public:
  explicit Fp8Check(const Fp8Recipe& recipe) : recipe_(recipe) {}

  /// `whole`: every element; otherwise the scale, and of the rest a few.
  void see(const LiveFp8& cast, bool whole);
  void end_step();
  /// The state that a run goes on from.
  void restore(const std::string& tensor, const Fp8State::Of& of);

  std::vector<Fp8Departure> departures() const;
  std::vector<Fp8Loss> losses() const;
  const Fp8Recipe& recipe() const { return recipe_; }

 private:
  static constexpr int kMostLag = 8, kMostMargin = 16, kEver = 1 << 16;
  /// What would explain a scale that is not the recipe's. All that is left agrees with every step so far.
  struct Explained {
    int shortest = 1, longest = kEver;    ///< lengths of history
    std::set<int> frozen, lags, margins;  ///< steps that the scale knows of; steps that it is late; margins
    bool has_length() const { return shortest <= longest; }
  };
  struct Of {
    std::string op, layer, tensor;
    bool gradient = false;
    std::vector<float> amaxes;  ///< of all steps so far, oldest first; before a resume those that were kept
    std::vector<float> scales;  ///< the recipe's, once each step was over
    std::vector<float> used;    ///< of each step; of those before a resume they are not known
    std::optional<float> now;   ///< of the step that runs
    std::map<Fp8Departure::Kind, Fp8Departure> found;
    Fp8Loss loss;
    std::int64_t step_elements = 0, step_saturated = 0, step_zeros = 0;  ///< of the step that runs
    int step = 0;
    float step_scale = 1;  ///< the first of the step
    Dtype step_dtype = Dtype::e4m3fn;
  };

  float amax_over(const Of& of, int until, int length) const;
  float scale_of(const Of& of, int until, int length, int margin) const;
  void check_scale(Of& of, const LiveFp8& cast, float amax);
  Explained explained(const Of& of) const;
  void narrow_down(const Of& of, int n, float scale, Explained& e) const;
  void check_numbers(Of& of, const LiveFp8& cast, bool whole);
  void note(Of& of, Fp8Departure::Kind kind, const LiveFp8& cast, const std::string& what);
  std::optional<Fp8Departure> scale_departure() const;

  Fp8Recipe recipe_;
  std::map<std::string, Of, std::less<>> of_;
  std::vector<std::string> order_;
};

}  // namespace ampcheck::checks::train
