// SPDX-License-Identifier: Apache-2.0
// Beside each float of a launch a number in fp64 that follows the same operations without their rounding: so each
// source line shows what its own roundings do, and what has come together before. A shade counts while its float has
// the bits it was made with; whatever takes a float apart as a whole number begins anew.
#pragma once

#include <array>
#include <memory>
#include <unordered_map>
#include <vector>

#include "src/line_errors.h"
#include "src/ptx/machine.h"
#include "src/ptx/matrix_places.h"

namespace ampcheck::ptx {

/// The number that bits of a format are.
double real_of(NumberFormat format, std::uint64_t bits);
bool has_half_its_digits(NumberFormat format, double got, double want);
unsigned operands_of(NumberOp op);

class Shades {
 public:
  Shades(const Program& program, Machine& machine, std::uint32_t warps);
  /// Registers, shared and local memory begin anew.
  void start_block();
  void before(WarpState& w, const Instruction& in);
  void after(WarpState& w, const Instruction& in);
  std::vector<LineErrors> lines(const std::string& kernel) const;

 private:
  struct Shade {
    double value = 0;
    std::uint64_t bits = 0;                    ///< of the float that it belongs to
    std::uint32_t origin = kNone;              ///< place that took most digits
    std::int16_t lost = 0;                     ///< how many bits it took
    NumberFormat format = NumberFormat::none;  ///< none: no shade
    LineErrors::Why why = LineErrors::Why::rounding;
  };
  /// The shades of a register: of its lower and upper half, or of the whole in the first.
  struct Lanes {
    Shade part[2][kLanes];
  };
  struct Operand {
    double real = 0;
    Shade shade;
  };
  struct Page {
    std::array<Shade, 2048> at;  ///< by 2 bytes
  };

  Lanes* known(const WarpState& w, Slot slot);
  Lanes& made(const WarpState& w, Slot slot);
  void drop(const WarpState& w, Slot slot, Mask lanes);
  Operand read(const WarpState& w, Slot slot, NumberFormat format, unsigned part, unsigned lane);
  Shade* cell(std::uint64_t address, bool make);
  std::uint64_t key(const WarpState& w, std::uint64_t address, unsigned lane) const;

  void compute(const WarpState& w, const Instruction& in);
  static bool rounds_on_purpose(const Number& number, const Operand* from);
  Shade settle(const Instruction& in, double got, const Operand* from, unsigned n);
  void count(LineErrors& line, const Instruction& in, double got, double exact, const Operand* from, unsigned n);
  void blame(Shade& out, const Instruction& in, double got, double exact, const Operand* from, unsigned n,
             std::int64_t cancelled) const;
  void hold(const WarpState& w, const Instruction& in);
  void hold_addresses(const WarpState& w, const Instruction& in);
  void arrive(const WarpState& w, Slot slot);
  void move_vector(const WarpState& w, const Instruction& in);
  void load_lanes(const WarpState& w, const Instruction& in);
  void store_lanes(const WarpState& w, const Instruction& in);
  void load_cells(const WarpState& w, Slot slot, unsigned lane, std::uint64_t at, std::uint32_t bytes);
  void store_cells(const WarpState& w, Slot slot, unsigned lane, std::uint64_t at, std::uint32_t bytes);
  void put(const Shade& shade, std::uint64_t key, std::uint64_t at, std::uint32_t bytes);
  void load_matrix(const WarpState& w, const Instruction& in);
  void add_atomically(const WarpState& w, const Instruction& in);
  void hold_product(const WarpState& w, const Instruction& in);
  void multiply(const WarpState& w, const Instruction& in);
  Operand dot(std::size_t row, std::size_t column) const;
  void hold_fragment(const WarpState& w, const Instruction& in);
  void move_fragment(const WarpState& w, const Instruction& in);

  const Program& program_;
  Machine& machine_;
  std::vector<std::vector<std::unique_ptr<Lanes>>> registers_;  ///< by warp and slot
  std::unordered_map<std::uint64_t, std::unique_ptr<Page>> pages_;
  std::uint64_t last_page_ = ~std::uint64_t{0};
  Page* last_ = nullptr;
  std::vector<LineErrors> lines_;  ///< by place
  /// Of the instruction at hand, from before it runs: what it takes may lie where its result goes.
  Operand from_[3][2][kLanes];
  Shade moved_[2][kLanes];
  std::uint64_t at_[kLanes] = {};
  std::uint32_t storing_ = 0;  ///< place of the store at hand
  ProductPlaces product_;
  std::vector<Operand> factors_[2], sums_;  ///< of the product at hand
  std::vector<FragmentPlace> fragment_;
  std::uint32_t fragment_bytes_ = 0;
};

}  // namespace ampcheck::ptx
