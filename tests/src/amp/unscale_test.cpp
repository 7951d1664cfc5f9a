// SPDX-License-Identifier: Apache-2.0
// torch's two scaler kernels, called directly (unscale_kernel.json).
#include "src/amp/unscale.h"

#include <gtest/gtest.h>

#include "src/amp/error.h"
#include "tests/support/golden_coverage.h"
#include "tests/support/goldens.h"

namespace ampcheck {
namespace {

using tests::Golden;
using tests::real;

/// A gradient with the strides it was recorded with, in memory of its own.
struct Strided {
  Tensor memory;
  TensorView view;
};

Strided strided(const Golden& spec, const Golden* strides) {
  const Tensor dense = tests::tensor_of(spec);
  if (strides == nullptr) return {dense, dense.view()};
  Strided made;
  made.view = dense.view();
  std::int64_t reach = 1;
  for (int axis = 0; axis < dense.shape().rank; ++axis) {
    made.view.strides[axis] = static_cast<std::int64_t>((*strides)[static_cast<std::size_t>(axis)].value);
    reach += std::max<std::int64_t>(dense.shape()[axis] - 1, 0) * made.view.strides[axis];
  }
  made.memory = Tensor(dense.dtype(), {reach});
  made.view.data = made.memory.data();
  copy_elements(dense.view(), made.view);
  return made;
}

Tensor one_element(Dtype dtype, double value) {
  Tensor made(dtype, {});
  from_doubles(std::vector{value}, made.view());
  return made;
}

void play_unscale(const Golden& entry) {
  const std::string& name = entry.at("name").text;
  SCOPED_TRACE(name);
  if (name == "dtype_refused/complex64") return;  // no such dtype here
  if (name == "dtype_refused/float8_e4m3fn") {
    const Tensor grad(Dtype::e4m3fn, {2});
    float found = 0.0f;
    try {
      check_and_unscale(std::vector{grad.view()}, 1.0f, found);
      FAIL() << "accepted";
    } catch (const AmpError& e) {
      EXPECT_EQ(e.what(), entry.at("error").at("message").text);
    }
    return;
  }
  std::vector<Strided> grads;
  std::vector<TensorView> views;
  const Golden* strides = entry.find("strides");
  for (std::size_t i = 0; i < entry.at("grads_in").size(); ++i) {
    const bool given = strides != nullptr && strides->is_list() && i < strides->size();
    grads.push_back(strided(entry.at("grads_in")[i], given ? &(*strides)[i] : nullptr));
    views.push_back(grads.back().view);
  }
  const Golden& inv = entry.at("inv_scale");
  Tensor inv_scale = one_element(tests::dtype_of(inv.at("dtype").text), real(inv));
  if (name == "args/inv_scale_two_elements") inv_scale = Tensor(Dtype::fp32, {2});
  const Tensor found = one_element(Dtype::fp32, real(entry.at("found_inf_in")));
  std::string error;
  try {
    check_and_unscale(views, found.view(), inv_scale.view());
  } catch (const AmpError& e) {
    error = std::string(e.type) + ": " + e.what();
  }
  const Golden* want = entry.find("error");
  EXPECT_EQ(error, want == nullptr ? "" : want->at("type").text + ": " + want->at("message").text);
  EXPECT_TRUE(tests::same_number(to_doubles(found.view())[0], real(entry.at("found_inf_out"))));
  if (want != nullptr) return;
  for (std::size_t i = 0; i < views.size(); ++i) {
    Tensor dense(views[i].dtype, views[i].shape);
    copy_elements(views[i], dense.view());
    EXPECT_TRUE(tests::same_tensor(dense, entry.at("grads_out")[i])) << "gradient " << i;
  }
}

void play_update(const Golden& entry) {
  SCOPED_TRACE(entry.at("name").text);
  const Golden& dtypes = entry.at("dtypes");
  Shape shape;
  for (const Golden& extent : entry.at("shape")) shape.extent[shape.rank++] = static_cast<std::int64_t>(extent.value);
  const auto make = [&](const char* field, double value) {
    Tensor made(tests::dtype_of(dtypes.at(field).text), shape);
    from_doubles(std::vector<double>(static_cast<std::size_t>(made.count()), value), made.view());
    return made;
  };
  const Tensor scale = make("scale", real(entry.at("scale_in"))),
               tracker = make("tracker", entry.at("tracker_in").value);
  const Tensor found = make("found_inf", real(entry.at("found_inf")));
  std::string error;
  try {
    update_scale(scale.view(), tracker.view(), found.view(), real(entry.at("growth_factor")),
                 real(entry.at("backoff_factor")), static_cast<std::int32_t>(entry.at("growth_interval").value));
  } catch (const AmpError& e) {
    error = std::string(e.type) + ": " + e.what();
  }
  const Golden* want = entry.find("error");
  EXPECT_EQ(error, want == nullptr ? "" : want->at("type").text + ": " + want->at("message").text);
  if (want != nullptr) return;
  EXPECT_TRUE(tests::same_number(to_doubles(scale.view())[0], real(entry.at("scale_out"))));
  EXPECT_EQ(to_doubles(tracker.view())[0], entry.at("tracker_out").value);
}

const tests::Played played_unscale("unscale_kernel.json", "unscale", play_unscale),
    played_update("unscale_kernel.json", "update", play_update);

TEST(UnscaleGoldens, EveryUnscaleCall) {
  AMPCHECK_GOLDEN_OR_SKIP(golden, "unscale_kernel.json");
  for (const Golden& entry : golden.at("unscale")) play_unscale(entry);
}

TEST(UnscaleGoldens, EveryUpdateCall) {
  AMPCHECK_GOLDEN_OR_SKIP(golden, "unscale_kernel.json");
  for (const Golden& entry : golden.at("update")) play_update(entry);
}

}  // namespace
}  // namespace ampcheck
