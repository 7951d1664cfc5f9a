// SPDX-License-Identifier: Apache-2.0
// The plain side of the comparison: forward + backward of an op in double, once, with nothing recomputed and every
// buffer allocated beforehand.
#pragma once

#include <Eigen/Core>
#include <cmath>

#include "reference/ball/ball_rules.h"

namespace ampcheck::bench {

using Matrix = Eigen::Array<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Row = Eigen::Array<double, 1, Eigen::Dynamic>;

struct PlainOp {
  explicit PlainOp(Eigen::Index rows, Eigen::Index columns)
      : x(Matrix::Random(rows, columns) * 3),
        g(Matrix::Random(rows, columns)),
        y(rows, columns),
        dx(rows, columns),
        kept(rows, columns),
        scale(rows),
        weight(Row::Random(columns)),
        bias(Row::Random(columns)),
        dweight(columns),
        dbias(columns) {}
  Matrix x, g, y, dx, kept;
  Eigen::ArrayXd scale;
  Row weight, bias, dweight, dbias;
};

inline void plain_softmax(PlainOp& t) {
  for (Eigen::Index i = 0; i < t.x.rows(); ++i) {
    t.y.row(i) = (t.x.row(i) - t.x.row(i).maxCoeff()).exp();
    t.y.row(i) *= 1 / t.y.row(i).sum();
  }
  for (Eigen::Index i = 0; i < t.x.rows(); ++i) {
    const double dot = (t.g.row(i) * t.y.row(i)).sum();
    t.dx.row(i) = t.y.row(i) * (t.g.row(i) - dot);
  }
}

/// Eigen has no vectorised erf in double: the one of the reference (glibc's vector library) is faster.
inline void plain_gelu(PlainOp& t) {
  const auto width = static_cast<int>(t.x.cols());
  for (Eigen::Index i = 0; i < t.x.rows(); ++i) {
    t.kept.row(i) = t.x.row(i) * M_SQRT1_2;
    reference::vector_erf(&t.kept(i, 0), &t.kept(i, 0), width);
    t.kept.row(i) = 0.5 + 0.5 * t.kept.row(i);
    t.y.row(i) = t.x.row(i) * t.kept.row(i);
  }
  for (Eigen::Index i = 0; i < t.x.rows(); ++i)
    t.dx.row(i) = t.g.row(i) *
                  (t.kept.row(i) + t.x.row(i) * ((-0.5 * t.x.row(i).square()).exp() * (0.5 * M_SQRT1_2 * M_2_SQRTPI)));
}

inline void plain_layer_norm(PlainOp& t) {
  const double n = static_cast<double>(t.x.cols());
  for (Eigen::Index i = 0; i < t.x.rows(); ++i) {
    t.kept.row(i) = t.x.row(i) - t.x.row(i).sum() / n;
    t.scale(i) = 1 / std::sqrt(t.kept.row(i).square().sum() / n + 1e-5);
    t.kept.row(i) *= t.scale(i);
    t.y.row(i) = t.kept.row(i) * t.weight + t.bias;
  }
  t.dweight.setZero();
  t.dbias.setZero();
  for (Eigen::Index i = 0; i < t.x.rows(); ++i) {
    t.dweight += t.g.row(i) * t.kept.row(i);
    t.dbias += t.g.row(i);
    t.dx.row(i) = t.g.row(i) * t.weight;
    const double mean = t.dx.row(i).sum() / n, slope = (t.dx.row(i) * t.kept.row(i)).sum() / n;
    t.dx.row(i) = t.scale(i) * (t.dx.row(i) - mean - t.kept.row(i) * slope);
  }
}

inline void plain_rms_norm(PlainOp& t) {
  const double n = static_cast<double>(t.x.cols());
  for (Eigen::Index i = 0; i < t.x.rows(); ++i) {
    t.scale(i) = 1 / std::sqrt(t.x.row(i).square().sum() / n + 1e-6);
    t.kept.row(i) = t.x.row(i) * t.scale(i);
    t.y.row(i) = t.kept.row(i) * t.weight;
  }
  t.dweight.setZero();
  for (Eigen::Index i = 0; i < t.x.rows(); ++i) {
    t.dweight += t.g.row(i) * t.kept.row(i);
    t.dx.row(i) = t.g.row(i) * t.weight;
    const double slope = (t.dx.row(i) * t.kept.row(i)).sum() / n;
    t.dx.row(i) = t.scale(i) * (t.dx.row(i) - t.kept.row(i) * slope);
  }
}

}  // namespace ampcheck::bench
