// SPDX-License-Identifier: Apache-2.0
// An autocast as an auditor sees it: actions go in, and what can be observed comes out.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/amp/autocast_versions.h"

namespace ampcheck::checks::autocast {

enum class Do : std::uint8_t {
  enter,   ///< a region
  leave,   ///< the innermost region
  raise,   ///< an exception leaves all regions
  call,    ///< an op, on tensors of these dtypes
  use,     ///< a matrix product with a weight, an fp32 leaf of one element, and its backward
  update,  ///< the weight changes in place: 1, 2, 3, ...
  clear,   ///< the cache
  custom,  ///< a custom op's forward, and its backward outside of all regions
};

/// On which thread.
enum class Thread : std::uint8_t { here, fresh, handed };
enum class Form : std::uint8_t { functional, in_place, out };

struct Action {
  Do what = Do::call;
  bool enabled = true;              ///< enter
  std::optional<Dtype> dtype = {};  ///< enter: none: the enclosing region's, outermost the device's
  bool cache = true;                ///< enter
  std::string op = {};              ///< call
  std::vector<Dtype> inputs = {};   ///< call; custom: one
  std::optional<Dtype> given = {};  ///< call: an explicit dtype=; custom: cast_inputs
  Form form = Form::functional;     ///< call
  bool no_grad = false;             ///< use
  Thread thread = Thread::here;     ///< call, use: another one, with or without the regions of this one

  std::string str() const;
};

/// After an action.
struct Reply {
  bool error = false;
  std::string text;
  bool enabled = false;        ///< the thread's state
  Dtype dtype = Dtype::fp16;   ///< and its region's type; where nothing is enabled it says nothing
  std::vector<Dtype> inputs;   ///< call: what the arguments became; custom: what forward saw
  std::optional<Dtype> given;  ///< call: the dtype= that the op was handed
  int value = 0;               ///< use: the weight that the product saw
  Dtype used = Dtype::fp32;    ///< use: the dtype in which it ran
  bool grad = false;           ///< use: its weight got a gradient
  Dtype grad_dtype = Dtype::fp32;
  std::int64_t held = 0;                  ///< cached casts
  bool inside = false, backward = false;  ///< custom: autocast is on in forward, and in backward
  Dtype inside_dtype = Dtype::fp16, backward_dtype = Dtype::fp16;  ///< where it is on
};

/// What is audited.
class Subject {
 public:
  virtual ~Subject() = default;
  /// These actions on a new thread, with a weight of 1. Ends behind the first error.
  virtual std::vector<Reply> run(std::span<const Action> actions) = 0;
  /// Whether it says what the arguments of a call become.
  virtual bool has_calls() const { return true; }
  virtual bool has_custom() const { return true; }
  virtual bool has_threads() const { return true; }
  /// Whether a sequence costs next to nothing.
  virtual bool is_fast() const { return true; }
};

/// `ampcheck`'s own autocast with a device's lists.
std::unique_ptr<Subject> built_in_autocast(AutocastDevice device);

/// What autocast decides for a call, written down apart from any autocast.
struct Decision {
  bool refused = false;
  std::string why;
  std::vector<Dtype> inputs;
  std::optional<Dtype> given;  ///< the dtype= that the op is handed
  bool foreign = false;        ///< a 16-bit argument of another type was cast

  /// The dtype in which an op of floating arguments computes.
  Dtype computes() const;
};
Decision decide(CastPolicy policy, bool enabled, Dtype region, std::span<const Dtype> inputs,
                std::optional<Dtype> given = {}, Form form = Form::functional);

/// What torch's rules say of actions. `list`: of the device.
std::vector<Reply> what_is_due(const AutocastList& list, AutocastDevice device, std::span<const Action> actions);

}  // namespace ampcheck::checks::autocast
