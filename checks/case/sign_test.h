// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ampcheck::checks {

/// log of n over k.
double log_choose(double n, double k);

/// Two-sided p of the sign test: `positive` of `draws` have one sign.
double sign_test(int positive, int draws);

}  // namespace ampcheck::checks
