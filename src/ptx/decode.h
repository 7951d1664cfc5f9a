// SPDX-License-Identifier: Apache-2.0
// What the parts of the decoder share: operands to slots, types, and complaints with their line.
#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "src/ptx/lanes.h"

namespace ampcheck::ptx {

/// The type word of an instruction.
struct Type {
  char kind = 'b';  ///< b, u, s, f; p a predicate; h bfloat; x an 8-bit float
  int bits = 32;    ///< of one element
  int lanes = 1;    ///< 2 for f16x2
  std::string_view word = {};
  int width() const { return bits * lanes; }
  bool is(std::string_view text) const { return word == text; }
};

/// Modifiers of an instruction, taken one by one; what is left in the end is unknown.
class Words {
 public:
  explicit Words(const std::vector<std::string>& words) : words_(words), used_(words.size(), false) { used_[0] = true; }
  bool take(std::string_view word);
  /// The next type word that is not taken yet; a type of no kind if there is none.
  bool take_type(Type& out);
  /// The first word that is not taken; empty: all are.
  std::string left() const;

 private:
  const std::vector<std::string>& words_;
  std::vector<bool> used_;
};

bool find_type(std::string_view word, Type& out);
bool one_of(std::string_view word, std::initializer_list<std::string_view> words);

class Decoder {
 public:
  explicit Decoder(Module module);
  std::shared_ptr<const Program> all();

  // ---- for the parts ----
  [[noreturn]] void fail(const std::string& what) const;
  const Statement& statement() const { return *statement_; }
  const Operand& operand(std::size_t i) const;
  std::size_t operands() const { return statement_->operands.size(); }
  void want_operands(std::size_t least, std::size_t most) const;
  /// Fails for a word that nobody took.
  void want_all(const Words& words) const;
  /// The result and operands of one type.
  void results_and_values(Instruction& in, const Type& t, std::size_t values);
  Program& program() { return *program_; }
  const Module& module() const { return program_->text; }

  /// A value to read of 32 or 64 bits (types of less lie in 32), a register or a constant. `as`: how a float constant
  /// is meant.
  Slot value(const Operand& operand, const Type& as);
  Slot result(const Operand& operand, const Type& as);
  Slot predicate(const Operand& operand);  ///< to read; a negated one is not taken
  Slot predicate_result(const Operand& operand);
  Slot constant(std::uint64_t bits, bool wide);
  Slot mask_constant(Mask mask);
  /// Bits of the register that an operand names; 0 if it names none.
  int register_bits(const Operand& operand) const;
  /// A fresh register of the function for what has to go somewhere.
  Slot scratch(bool wide);
  /// Base and offset of an address: in.from[0] is the base (64 bits wide), in.number is what is added.
  void address(const Operand& operand, Space& space, Instruction& in);
  std::uint32_t add_extra(std::uint32_t value);
  std::uint32_t function_index(const std::string& name) const;

 private:
  void lay_out_globals();
  template <class Visit>
  void each_function(std::uint32_t& at, Visit visit);
  void lay_out(std::size_t index);
  void lay_out_registers(std::size_t index);
  void specials();
  void body(std::size_t index);
  void one(const Statement& statement, Instruction& in);
  void branch_targets(const Function& function, const Statement& statement, Instruction& in);
  void call(Instruction& in);
  Slot named_value(const Operand& operand, bool wide);
  bool special(const std::string& name, Slot& out) const;
  bool address_of(const std::string& name, std::uint64_t& out) const;
  Slot new_register(int bits);

  std::shared_ptr<Program> program_;
  const Function* function_ = nullptr;
  std::size_t function_at_ = 0;
  const Statement* statement_ = nullptr;
  std::vector<std::vector<Slot>> registers_;                                    ///< by function
  std::vector<std::map<std::string, std::pair<Space, std::uint64_t>>> places_;  ///< variables of each function
  std::map<std::string, std::pair<Space, std::uint64_t>> module_places_;
  std::unordered_map<std::uint64_t, Slot> narrow_, wide_;
};

/// Each takes the instructions that it knows: false for others.
bool decode_integer(Decoder& d, Instruction& in);
bool decode_bits(Decoder& d, Instruction& in);
bool decode_float(Decoder& d, Instruction& in);
bool decode_half(Decoder& d, Instruction& in);
bool decode_convert(Decoder& d, Instruction& in);
bool decode_compare(Decoder& d, Instruction& in);
bool decode_move(Decoder& d, Instruction& in);
bool decode_memory(Decoder& d, Instruction& in);
bool decode_atomic(Decoder& d, Instruction& in);
bool decode_warp(Decoder& d, Instruction& in);
bool decode_matrix(Decoder& d, Instruction& in);
bool decode_wmma(Decoder& d, Instruction& in);
bool decode_flow(Decoder& d, Instruction& in);

}  // namespace ampcheck::ptx
