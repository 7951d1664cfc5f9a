// SPDX-License-Identifier: Apache-2.0
// A PTX module that is ready to run: each instruction has the function that carries it out, and operands are places in
// the register file of a warp.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/ptx/number.h"
#include "src/ptx/text.h"

namespace ampcheck::ptx {

inline constexpr int kLanes = 32;
using Mask = std::uint32_t;
inline constexpr Mask kAll = ~Mask{0};

class Warp;
struct Instruction;
/// Carries an instruction out for the lanes of Warp::mask.
using Execute = void (*)(Warp&, const Instruction&);

/// Where an operand lies: an offset in bytes into the registers of the warp, or, with the top bit, into the constants
/// of the program. Registers of up to 32 bits are 32 lanes of 4 bytes, of 64 bits 32 lanes of 8, a predicate one Mask.
using Slot = std::uint32_t;
inline constexpr Slot kConstant = 0x80000000u, kNone = 0xffffffffu;
/// In Program::extra: the register of an access of memory has 64 bits.
inline constexpr Slot kWideSlot = 0x40000000u;

/// Generic addresses: tensors lie where they do on the host, and these windows lie where no host memory does.
inline constexpr std::uint64_t kSharedWindow = std::uint64_t{1} << 56, kLocalWindow = std::uint64_t{2} << 56,
                               kGlobalWindow = std::uint64_t{3} << 56, kParamWindow = std::uint64_t{4} << 56,
                               kCodeWindow = std::uint64_t{5} << 56;

/// What an instruction does to the flow of control.
enum class Flow : std::uint8_t { plain, branch, indexed, exit, call, ret, barrier, warp, trap };

/// A result that is looked at: NaN and infinity of an f32, and of a 16-bit format that it was rounded to.
enum class Watch : std::uint8_t { none, single, half, bfloat };

struct Instruction {
  Execute run = nullptr;
  Flow flow = Flow::plain;
  bool guard_negated = false;
  std::uint8_t count = 1;  ///< of a vector access
  std::uint8_t bytes = 0;  ///< of one element in memory
  Space space = Space::generic;
  Slot guard = kNone;
  Slot to[2] = {kNone, kNone};
  Slot from[4] = {kNone, kNone, kNone, kNone};
  std::uint32_t more = 0;       ///< first of further slots or numbers in Program::extra
  std::uint32_t target = 0;     ///< of a branch; of a call, the function
  std::int64_t number = 0;      ///< added to an address; a table; a mode
  std::uint32_t place = 0;      ///< source line
  std::uint32_t line = 0;       ///< of the PTX text
  bool narrow_address = false;  ///< from[0] is an address of 32 bits
  Watch watch = Watch::none;    ///< what is looked for in its result
  Number number_of_it = {};     ///< what it does to floats
};

struct Routine {
  std::string name;
  bool entry = false, defined = false;
  std::vector<Variable> params = {}, returns = {};  ///< as the text has them
  std::vector<std::uint32_t> return_at = {};        ///< in local memory
  std::vector<std::uint32_t> param_at = {};         ///< of an entry in its parameters, else in local memory
  std::uint32_t param_bytes = 0;
  std::uint32_t register_end = 0;     ///< bytes of the register file that it needs, with what it calls
  std::uint32_t shared_bytes = 0;     ///< of all functions, without what the launch adds
  std::uint32_t first = 0, last = 0;  ///< instructions
  bool fp16 = false, bf16 = false;    ///< whether one of them has that type
};

/// The slots of what a thread may ask of itself.
struct Specials {
  Slot tid[3], ntid[3], ctaid[3], nctaid[3];
  Slot lane, warp, warps, lanes_below, lanes_up_to, lanes_from, lanes_above, equal, dynamic_shared, all_shared;
};

struct Program {
  Module text;
  std::vector<Routine> functions = {};
  std::vector<Instruction> code = {};
  std::vector<std::uint32_t> extra = {};
  std::vector<std::uint8_t> constants = {};  ///< broadcast immediates
  std::uint32_t register_bytes = 0;          ///< of a warp
  std::uint32_t local_bytes = 0;             ///< of a thread
  Specials specials = {};
  /// .global and .const variables, one behind the other: what they hold before a launch.
  std::vector<std::uint8_t> globals = {};
  struct Named {
    std::string name;
    std::uint64_t at = 0, bytes = 0;  ///< in globals, or in the shared memory of a block
    bool constant = false;
  };
  std::vector<Named> global_names = {}, shared_names = {};

  const Routine* entry(const std::string& name) const;
};

struct DecodeOptions {
  bool fuse = false;  ///< mul and add without rounding become one fma (src/ptx/fuse.h)
};
/// Of this process: how kernels that the doors and the stand-in meet are decoded.
void set_decode_options(DecodeOptions options);
DecodeOptions decode_options();

/// A kernel of a module by itself.
struct KernelFacts {
  std::string name;
  std::vector<std::uint64_t> parameters;  ///< bytes of each
  std::string why_not;                    ///< empty: device ptx runs it; else where and what stops it
};
std::vector<KernelFacts> kernels_of(const Module& module);

/// Throws PtxError with the line for an instruction that is not known, or has other operands than it wants.
std::shared_ptr<const Program> decode(Module module, DecodeOptions options = {});

}  // namespace ampcheck::ptx
