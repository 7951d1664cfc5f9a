// SPDX-License-Identifier: Apache-2.0
#include "reference/graph/strided.h"

#include <gtest/gtest.h>

namespace ampcheck::reference {
namespace {

TEST(StridedOffsets, AreThoseOfTheView) {
  struct View {
    Shape shape, strides;
  };
  const View views[] = {{{}, {}},
                        {{5}, {1}},
                        {{5}, {0}},
                        {{3, 4}, {1, 3}},  // transposed
                        {{2, 3, 4}, {12, 4, 1}},
                        {{2, 3, 4}, {40, 7, 2}},  // with gaps
                        {{2, 1, 3}, {0, 5, -1}},
                        {{2, 0, 3}, {3, 3, 1}}};
  for (const View& one : views) {
    const TensorView view{nullptr, Dtype::fp64, one.shape, one.strides};
    const std::vector<std::int64_t> got = strided_offsets(one.shape, one.strides, 11);
    ASSERT_EQ(static_cast<std::int64_t>(got.size()), view.count());
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_EQ(got[i], 11 + view.offset(static_cast<std::int64_t>(i))) << one.shape.str() << " " << i;
  }
}

}  // namespace
}  // namespace ampcheck::reference
