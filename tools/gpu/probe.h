// SPDX-License-Identifier: Apache-2.0
// The commands of gpu_probe. Each prints lines that begin with "= " for the summary of tools/gpu_check, and returns
// what it measured; `right` becomes false where the GPU does otherwise than expected.
#pragma once

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace ampcheck::gpu {

using Json = nlohmann::ordered_json;

inline void say(const std::string& text) { std::printf("= %s\n", text.c_str()); }

/// Captured instructions again, the floor of the alignment exponent, special values.
Json tensor_cores(const std::filesystem::path& captures, bool& right);
/// Unscaling, fused Adam and statistics against a copy on the device.
Json bandwidth();
/// Times of cuBLAS products by type, and of extents around a multiple of 8.
Json products();

}  // namespace ampcheck::gpu
