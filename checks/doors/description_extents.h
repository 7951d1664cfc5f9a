// SPDX-License-Identifier: Apache-2.0
// Extents of a plug-in's description: dimension symbols, and those that follow from symbols and attributes ("D/2").
#pragma once

#include <string>
#include <vector>

#include "checks/doors/description_fields.h"
#include "src/op_signature.h"

namespace ampcheck::checks::description {

void require_dim(const OpSignature& signature, const std::string& symbol, const char* what, const Place& place);

class FurtherExtents {
 public:
  /// The dims of a tensor, of which those are kept that are no symbol.
  void note(const std::string& dims, const OpSignature& signature, const Place& at);

  /// Once inputs and attributes are known: a case states what each of them follows from, they exist at the sample
  /// shapes, and the op takes no case where one does not. An attribute among them takes whole numbers alone.
  void settle(OpSignature& signature, const Place& op) const;

 private:
  struct Further {
    std::string extent;
    Place at;
  };

  static void require_names(const Further& further, OpSignature& signature);

  std::vector<Further> all_;
};

/// Every form is recorded and certified at the sample shapes: no input may have more than kMostExtent elements there.
void require_small_inputs(const OpSignature& signature, const Dims& dims, const Attributes& attributes,
                          const Place& place);

}  // namespace ampcheck::checks::description
