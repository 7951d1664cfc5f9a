// SPDX-License-Identifier: Apache-2.0
// torch's scale rule through the C++ face, and broken versions of it: -DBROKEN=divides_by_half, ...
#include <ampcheck/scaler.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <stdexcept>
#include <string>

namespace {

enum Fault {
  none,
  divides_by_half,
  last_unchecked,
  unscales_twice,
  state_without_count,
  grows_late,
  not_finite,
  crashes,
  exits,
  hangs,
  prints,
  crashes_late,
  wrong_late
};
#ifndef BROKEN
#define BROKEN none
#endif

constexpr bool is(Fault fault) { return fault == BROKEN; }

/// Of the process that this runs in, the words that started it, to standard output.
bool printed = false;
void print_process() {
  printed = true;
  std::ifstream file("/proc/self/cmdline");
  for (std::string word; std::getline(file, word, '\0');) std::printf("%s ", word.c_str());
  std::puts("");
}

struct Optimizer {
  enum { ready, unscaled, stepped } stage = ready;
  bool checked = false, found = false;
};

class MyScaler {
 public:
  explicit MyScaler(const ac_scaler_setup& setup)
      : setup_(setup), scale_(static_cast<float>(setup.init_scale)), interval_(setup.growth_interval) {}

  double get_scale() const { return on() ? static_cast<double>(scale_) : 1.0; }
  void set_growth_interval(int interval) { interval_ = interval; }
  double scale(double loss) {
    scaled_ = true;
    if (is(prints) && !printed) print_process();
    const bool late = ++losses_ == 6;  // before an update; long sequences alone come this far
    if (is(crashes_late) && late) std::abort();
    if (is(wrong_late) && late) return 0;
    return loss * get_scale();
  }

  void unscale(ampcheck::scaler::Gradients gradients) {
    if (!on()) return;
    Optimizer& o = optimizers_[gradients.optimizer()];
    if (!scaled_) throw std::runtime_error("unscale before scale");
    if (o.stage == Optimizer::stepped) throw std::runtime_error("unscale behind step");
    if (o.stage == Optimizer::unscaled && !is(unscales_twice)) throw std::runtime_error("unscaled twice");
    o.stage = Optimizer::unscaled;
    o.checked = gradients.exist();
    o.found = false;
    for (float* g = gradients.begin(); g != gradients.end(); ++g) {
      if (!std::isfinite(*g) && !(is(last_unchecked) && g + 1 == gradients.end())) o.found = true;
      *g /= is(divides_by_half) ? scale_ / 2 : scale_;
    }
  }

  bool step(ampcheck::scaler::Gradients gradients) {
    if (!on()) return true;
    Optimizer& o = optimizers_[gradients.optimizer()];
    if (o.stage == Optimizer::stepped) throw std::runtime_error("step twice");
    if (o.stage == Optimizer::ready) unscale(gradients);
    if (!o.checked) throw std::runtime_error("no gradients");
    o.stage = Optimizer::stepped;
    return !o.found;
  }

  void update() {
    if (!on()) return;
    if (!scaled_ || !(optimizers_[0].checked || optimizers_[1].checked))
      throw std::runtime_error("nothing was checked");
    const bool found =
        (optimizers_[0].checked && optimizers_[0].found) || (optimizers_[1].checked && optimizers_[1].found);
    losses_ = 0;
    for (Optimizer& o : optimizers_) o = {};
    if (is(crashes) && found) std::abort();
    if (is(exits) && found) std::exit(0);
    while (is(hangs) && found) usleep(1000);
    if (found) {
      scale_ = static_cast<float>(static_cast<double>(scale_) * setup_.backoff_factor);
      clean_ = 0;
    } else if (++clean_ == interval_ + (is(grows_late) ? 1 : 0)) {
      const auto grown = static_cast<float>(static_cast<double>(scale_) * setup_.growth_factor);
      if (std::isfinite(grown) || is(not_finite)) scale_ = grown;
      clean_ = 0;
    }
  }

  std::string save() const {
    std::string out(sizeof scale_ + sizeof clean_, '\0');
    std::memcpy(out.data(), &scale_, sizeof scale_);
    std::memcpy(out.data() + sizeof scale_, &clean_, sizeof clean_);
    return out;
  }
  void load(const std::string& state) {
    if (state.size() != sizeof scale_ + sizeof clean_) throw std::runtime_error("no such state");
    std::memcpy(&scale_, state.data(), sizeof scale_);
    if (!is(state_without_count)) std::memcpy(&clean_, state.data() + sizeof scale_, sizeof clean_);
  }

 private:
  bool on() const { return setup_.enabled != 0; }

  ac_scaler_setup setup_;
  float scale_;
  int interval_, clean_ = 0;
  bool scaled_ = false;
  int losses_ = 0;
  Optimizer optimizers_[2];
};

}  // namespace

AMPCHECK_SCALER(MyScaler)
