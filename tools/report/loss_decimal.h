// SPDX-License-Identifier: Apache-2.0
// A loss as text, readable at every size.
#pragma once

#include <string>

namespace ampcheck::tools {

/// Four decimals, "2.3973"; five significant digits where these would show little or too much of it, "5.8187e+86".
/// A NaN's sign says nothing.
std::string loss_decimal(double value);

}  // namespace ampcheck::tools
