// SPDX-License-Identifier: Apache-2.0
// One launch of a kernel on a simulated GPU: blocks one after the other, warps from barrier to barrier, lanes of a warp
// in lockstep. What a GPU would not say is a note.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "src/launch_facts.h"
#include "src/launch_notes.h"
#include "src/line_errors.h"
#include "src/ptx/program.h"

namespace ampcheck::ptx {

/// Memory that the kernel may use.
struct Region {
  std::string name;
  std::uint64_t address = 0;  ///< on the host
  std::uint64_t bytes = 0;
  bool initialised = true;  ///< false: reading it before it is written is a finding
};

struct Launch {
  std::array<std::uint32_t, 3> grid = {1, 1, 1}, block = {1, 1, 1};
  std::uint32_t dynamic_shared = 0;       ///< bytes
  std::vector<std::uint8_t> params = {};  ///< as Code::params lays them out
  std::vector<Region> regions = {};
  std::uint64_t schedule = 0;            ///< 0: blocks and warps in their order; else the seed of another one
  std::function<bool()> cancelled = {};  ///< asked now and then
  bool watch = true;                     ///< races and uninitialised reads
  bool follow = false;                   ///< each float beside a shadow in fp64
  /// What the variables of the module hold, before and behind the launch; null: what the text says, each time.
  std::vector<std::uint8_t>* globals = nullptr;
};

struct Outcome {
  std::vector<LaunchNote> notes;
  std::vector<LaunchFact> facts;
  std::vector<LineErrors> lines = {};  ///< of a launch that was followed
  std::uint64_t warp_instructions = 0;
  bool cancelled = false;
};

/// Throws PtxError for a launch that cannot be: no such kernel, a block of more than 1024 threads, ...
Outcome run(const Program& program, const std::string& kernel, const Launch& launch);

}  // namespace ampcheck::ptx
