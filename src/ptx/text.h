// SPDX-License-Identifier: Apache-2.0
// PTX as text: statements of functions with their operands, variables, and the source lines of .loc. What an
// instruction means is the decoder's affair (src/ptx/decode.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "src/error.h"

namespace ampcheck::ptx {

/// "[kernel.ptx:57] what, want ...".
struct PtxError : Error {
  using Error::Error;
};

struct Operand {
  enum class Kind : std::uint8_t { name, integer, real, address, list, sink, ored };
  Kind kind = Kind::name;
  std::string name = {};    ///< of a register, variable, label or function; of an address, its base (empty: a number)
  std::int64_t number = 0;  ///< an integer; of an address or a name, what is added
  double real = 0;          ///< of a float in decimals or as 0f/0d bits
  bool negated = false;     ///< !%p
  std::vector<Operand> parts = {};  ///< of {a, b}, (a, b) and a|b
};

struct Statement {
  int line = 0;            ///< of the PTX text
  int place = 0;           ///< index into Module::places
  std::string guard = {};  ///< the predicate, or empty
  bool guard_negated = false;
  std::vector<std::string> words = {};  ///< "ld", "global", "f32"
  std::vector<Operand> operands = {};
  std::string text() const;  ///< "ld.global.f32"
};

enum class Space : std::uint8_t { generic, global, shared, local, constant, param };

/// A variable of a function or of the module, or a parameter.
struct Variable {
  std::string name;
  Space space = Space::generic;
  std::uint32_t align = 1;
  std::uint64_t bytes = 0;  ///< 0: extern shared, as large as the launch says
  std::vector<std::uint8_t> initial = {};
  /// Addresses in an initialiser: where, of what, plus what.
  struct Address {
    std::uint64_t at = 0;
    std::string of;
    std::int64_t plus = 0;
  };
  std::vector<Address> addresses = {};
};

struct Register {
  char kind = 'b';  ///< p, b, f, u, s
  int bits = 32;    ///< 1 for a predicate
};

struct Function {
  std::string name;
  bool entry = false, defined = false;
  int line = 0;
  std::vector<Variable> params = {}, returns = {};
  std::vector<Variable> variables = {};  ///< local, shared and param variables of the body; names are unique
  std::vector<Register> registers = {};
  std::map<std::string, std::uint32_t> register_index = {};     ///< names are unique: a scope's are renamed
  std::map<std::string, std::uint32_t> labels = {};             ///< index of the statement behind
  std::map<std::string, std::vector<std::string>> tables = {};  ///< of .branchtargets and .calltargets
  std::vector<Statement> body = {};
};

/// A source line, as .loc says it, or a line of the PTX text where none is said.
struct Place {
  int file = 0;  ///< 0: the PTX text
  int line = 0;
  friend bool operator==(const Place&, const Place&) = default;
};

struct Module {
  std::string path;  ///< of the text, for messages
  int version = 0;   ///< 83 for 8.3
  std::string target;
  std::map<int, std::string> files = {};
  std::vector<Place> places = {};
  std::vector<Variable> variables = {};
  std::vector<Function> functions = {};

  const Function* function(std::string_view name) const;
  /// "softmax.cu:17"
  std::string place_text(int place) const;
};

/// Throws PtxError with path and line for a text that is no PTX or of a version that is not known.
Module parse(std::string_view text, const std::string& path);

}  // namespace ampcheck::ptx
