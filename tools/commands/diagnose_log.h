// SPDX-License-Identifier: Apache-2.0
// `ampcheck diagnose` of one recording or log of another tool, and of two recordings.
#pragma once

#include <string>

#include "tools/choose/other_data_options.h"
#include "tools/report/exit_code.h"

namespace ampcheck::tools {

/// One file or folder, - for standard input: a recording of msprobe, torchtitan, TransformerEngine or Hugging Face's
/// debug text, FlashInfer's dumps, or a training log.
ExitCode diagnose_one(const std::string& path, bool json, const OtherDataOptions& options);

/// Two recordings of one tool.
ExitCode diagnose_recordings(const std::string& a, const std::string& b, bool json);

}  // namespace ampcheck::tools
