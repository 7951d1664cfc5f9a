// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "src/ptx/device_facts.h"

#include <cstdint>
#include <cstring>
#include <initializer_list>

namespace ampcheck::ptx {

namespace {

constexpr int kThreads = 1024, kMostBlocks = 2147483647, kShared = 48 * 1024, kRegisters = 65536, kProcessors = 108,
              kThreadsOfProcessor = 2048, kSharedOfProcessor = 164 * 1024, kSharedAsked = 163 * 1024,
              kCache = 40 * 1024 * 1024, kConstants = 64 * 1024, kBlocksOfProcessor = 32;

struct Named {
  int attribute, value;
};
constexpr Named kAttributes[] = {{1, kThreads},  // threads of a block
                                 {2, kThreads},  // of its x, y and z
                                 {3, kThreads},
                                 {4, 64},
                                 {5, kMostBlocks},  // blocks of a grid, x, y and z
                                 {6, 65535},
                                 {7, 65535},
                                 {8, kShared},  // shared memory of a block
                                 {9, kConstants},
                                 {10, 32},           // lanes of a warp
                                 {11, kMostBlocks},  // pitch
                                 {12, kRegisters},   // of a block
                                 {16, kProcessors},
                                 {31, 1},  // kernels at a time
                                 {38, kCache},
                                 {39, kThreadsOfProcessor},
                                 {41, 1},  // one address space
                                 {75, 8},  // compute capability
                                 {76, 0},
                                 {81, kSharedOfProcessor},
                                 {82, kRegisters},    // of a multiprocessor
                                 {83, 1},             // managed memory
                                 {97, kSharedAsked},  // of a block that asks for it
                                 {106, kBlocksOfProcessor},
                                 {115, 1}};  // memory in the order of streams

/// Where the fields of cudaDeviceProp lie. Up to the compute capability all layouts agree.
struct Places {
  std::size_t bytes;  ///< that are written
  std::size_t processors, kernels_at_once, one_space, cache, threads_of_processor, shared_of_processor,
      registers_of_processor, managed, shared_asked;
};
constexpr Places places_of(PropertyLayout layout) {
  return layout == PropertyLayout::of_13
             ? Places{1008, 384, 560, 588, 596, 604, 624, 632, 636, 672}
             : Places{layout == PropertyLayout::of_12 ? std::size_t{1032} : std::size_t{704},
                      388,
                      576,
                      604,
                      616,
                      624,
                      640,
                      648,
                      652,
                      696};
}

}  // namespace

int attribute_of_device(int attribute) {
  for (const Named& known : kAttributes)
    if (known.attribute == attribute) return known.value;
  return 0;
}

bool write_properties(void* out, PropertyLayout layout) {
  if (out == nullptr) return false;
  const Places places = places_of(layout);
  auto* const bytes = static_cast<unsigned char*>(out);
  std::memset(bytes, 0, places.bytes);
  const auto put = [&](std::size_t at, auto value) { std::memcpy(bytes + at, &value, sizeof value); };
  constexpr char kName[] = "ampcheck device ptx";
  std::memcpy(bytes, kName, sizeof kName);
  put(288, std::uint64_t{kDeviceMemory});
  put(296, std::uint64_t{kShared});
  put(304, kRegisters);
  put(308, 32);
  put(312, std::uint64_t{kMostBlocks});
  put(320, kThreads);
  for (const auto& [at, value] : {Named{324, kThreads}, Named{328, kThreads}, Named{332, 64}, Named{336, kMostBlocks},
                                  Named{340, 65535}, Named{344, 65535}})
    put(static_cast<std::size_t>(at), value);
  put(352, std::uint64_t{kConstants});
  put(360, 8);  // compute capability 8.0
  put(places.processors, kProcessors);
  put(places.kernels_at_once, 1);
  put(places.one_space, 1);
  put(places.cache, kCache);
  put(places.threads_of_processor, kThreadsOfProcessor);
  put(places.shared_of_processor, std::uint64_t{kSharedOfProcessor});
  put(places.registers_of_processor, kRegisters);
  put(places.managed, 1);
  put(places.shared_asked, std::uint64_t{kSharedAsked});
  return true;
}

}  // namespace ampcheck::ptx
