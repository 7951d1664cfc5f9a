// SPDX-License-Identifier: Apache-2.0
#include "src/ptx/decode.h"

#include <algorithm>
#include <atomic>
#include <charconv>

#include "src/ptx/fuse.h"
#include "src/ptx/lexer.h"

namespace ampcheck::ptx {

namespace {

constexpr std::uint32_t kMostFile = 1u << 29;  ///< bytes of registers of a warp

template <class T>
T aligned(T at, T align) {
  return (at + align - 1) / align * align;
}

}  // namespace

bool find_type(std::string_view word, Type& out) {
  constexpr Type kNamed[] = {{'p', 1, 1, "pred"},    {'f', 16, 2, "f16x2"}, {'h', 16, 1, "bf16"},
                             {'h', 16, 2, "bf16x2"}, {'b', 32, 1, "tf32"},  {'x', 8, 2, "e4m3x2"},
                             {'x', 8, 2, "e5m2x2"},  {'x', 8, 1, "e4m3"},   {'x', 8, 1, "e5m2"}};
  for (const Type& known : kNamed)
    if (known.word == word) {
      out = known;
      return true;
    }
  if (word.size() < 2 || word.size() > 4 || std::string_view("busf").find(word[0]) == std::string_view::npos)
    return false;
  int bits = 0;
  const auto [end, error] = std::from_chars(word.data() + 1, word.data() + word.size(), bits);
  if (error != std::errc() || end != word.data() + word.size()) return false;
  if (bits != 8 && bits != 16 && bits != 32 && bits != 64 && bits != 128) return false;
  out = {word[0], bits, 1, word};
  return true;
}

bool one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool Words::take(std::string_view word) {
  for (std::size_t i = 1; i < words_.size(); ++i)
    if (!used_[i] && words_[i] == word) {
      used_[i] = true;
      return true;
    }
  return false;
}
bool Words::take_type(Type& out) {
  for (std::size_t i = 1; i < words_.size(); ++i)
    if (!used_[i] && find_type(words_[i], out)) {
      used_[i] = true;
      return true;
    }
  return false;
}
std::string Words::left() const {
  for (std::size_t i = 1; i < words_.size(); ++i)
    if (!used_[i]) return words_[i];
  return "";
}

Decoder::Decoder(Module module) : program_(std::make_shared<Program>()) { program_->text = std::move(module); }

void Decoder::fail(const std::string& what) const {
  ptx::fail(module().path, statement_ == nullptr ? 1 : statement_->line, what);
}

const Operand& Decoder::operand(std::size_t i) const {
  if (i >= statement_->operands.size()) fail("got too few operands of " + statement_->text());
  return statement_->operands[i];
}

void Decoder::want_operands(std::size_t least, std::size_t most) const {
  const std::size_t n = statement_->operands.size();
  if (n < least || n > most)
    fail("got " + std::to_string(n) + " operands of " + statement_->text() + ", want " + std::to_string(least) +
         (most == least ? "" : " to " + std::to_string(most)));
}

void Decoder::want_all(const Words& words) const {
  if (const std::string left = words.left(); !left.empty())
    fail("got '." + left + "' of " + statement_->words[0] + ", which device ptx does not run here");
}

void Decoder::results_and_values(Instruction& in, const Type& t, std::size_t values) {
  want_operands(values + 1, values + 1);
  in.to[0] = result(operand(0), t);
  for (std::size_t i = 0; i < values; ++i) in.from[i] = value(operand(i + 1), t);
}

// ---- layout ----

Slot Decoder::new_register(int bits) {
  std::uint32_t& at = program_->register_bytes;
  if (bits != 1) at = aligned(at, 64u);
  const Slot out = at;
  at += bits == 1 ? 4 : bits == 64 ? 256 : 128;
  if (at > kMostFile) fail("got more registers than device ptx runs");
  return out;
}

void Decoder::specials() {
  Specials& s = program_->specials;
  for (auto* const three : {&s.tid, &s.ntid, &s.ctaid, &s.nctaid})
    for (Slot& slot : *three) slot = new_register(32);
  for (Slot* const one : {&s.lane, &s.warp, &s.warps, &s.lanes_below, &s.lanes_up_to, &s.lanes_from, &s.lanes_above,
                          &s.equal, &s.dynamic_shared, &s.all_shared})
    *one = new_register(32);
}

bool Decoder::special(const std::string& name, Slot& out) const {
  const Specials& s = program_->specials;
  const std::pair<const char*, Slot> kOnes[] = {{"%laneid", s.lane},
                                                {"%warpid", s.warp},
                                                {"%nwarpid", s.warps},
                                                {"%lanemask_lt", s.lanes_below},
                                                {"%lanemask_le", s.lanes_up_to},
                                                {"%lanemask_ge", s.lanes_from},
                                                {"%lanemask_gt", s.lanes_above},
                                                {"%lanemask_eq", s.equal},
                                                {"%dynamic_smem_size", s.dynamic_shared},
                                                {"%total_smem_size", s.all_shared}};
  for (const auto& [word, slot] : kOnes)
    if (name == word) {
      out = slot;
      return true;
    }
  const std::pair<const char*, const Slot*> kThrees[] = {
      {"%tid.", s.tid}, {"%ntid.", s.ntid}, {"%ctaid.", s.ctaid}, {"%nctaid.", s.nctaid}};
  for (const auto& [head, slots] : kThrees)
    if (name.starts_with(head) && name.size() == std::string_view(head).size() + 1 && name.back() >= 'x' &&
        name.back() <= 'z') {
      out = slots[name.back() - 'x'];
      return true;
    }
  return false;
}

void Decoder::lay_out_globals() {
  std::uint64_t shared = 0;
  for (const Variable& variable : module().variables) {
    if (variable.space == Space::shared) {
      shared = aligned<std::uint64_t>(shared, variable.align);
      module_places_[variable.name] = {Space::shared, shared};
      if (variable.bytes == 0) continue;  // where the launch's own bytes begin: known once all others are
      program_->shared_names.push_back({variable.name, shared, variable.bytes, false});
      shared += variable.bytes;
      continue;
    }
    if (variable.space != Space::global && variable.space != Space::constant)
      fail("got the variable '" + variable.name + "' of the module in local memory, want it in a function");
    // A gap behind each, so that what runs over one does not meet the next.
    const std::uint64_t at =
        aligned<std::uint64_t>(program_->globals.size() + 64, std::max<std::uint64_t>(variable.align, 64));
    if (at + variable.bytes > (std::uint64_t{1} << 30)) fail("got more than 1 GiB of variables");
    program_->globals.resize(at + variable.bytes);
    std::copy(variable.initial.begin(), variable.initial.end(),
              program_->globals.begin() + static_cast<std::ptrdiff_t>(at));
    program_->global_names.push_back({variable.name, at, variable.bytes, variable.space == Space::constant});
    module_places_[variable.name] = {variable.space, kGlobalWindow + at};
  }
}

/// Parameters and variables of a function.
void Decoder::lay_out(std::size_t index) {
  const Function& function = module().functions[index];
  Routine code;
  code.name = function.name;
  code.entry = function.entry;
  code.defined = function.defined;
  code.params = function.params;
  code.returns = function.returns;
  std::map<std::string, std::pair<Space, std::uint64_t>> places;
  const auto local = [&](const Variable& variable) {
    std::uint32_t& at = program_->local_bytes;
    at = aligned(at, std::max(variable.align, 8u));
    const std::uint32_t out = at;
    if (variable.bytes > (1u << 26)) fail("got more than 64 MiB of local memory");
    at += static_cast<std::uint32_t>(variable.bytes);
    places[variable.name] = {Space::local, out};
    return out;
  };
  for (const Variable& param : function.params) {
    if (!function.entry) {
      code.param_at.push_back(local(param));
      continue;
    }
    code.param_bytes = aligned(code.param_bytes, param.align);
    code.param_at.push_back(code.param_bytes);
    places[param.name] = {Space::param, code.param_bytes};
    code.param_bytes += static_cast<std::uint32_t>(param.bytes);
  }
  for (const Variable& result : function.returns) code.return_at.push_back(local(result));
  std::uint64_t shared = 0;
  for (const auto& named : program_->shared_names) shared = std::max(shared, named.at + named.bytes);
  for (const Variable& variable : function.variables) {
    if (variable.space == Space::shared) {
      shared = aligned<std::uint64_t>(shared, variable.align);
      places[variable.name] = {Space::shared, shared};
      if (variable.bytes == 0) continue;
      program_->shared_names.push_back({variable.name, shared, variable.bytes, false});
      shared += variable.bytes;
    } else if (variable.space == Space::local || variable.space == Space::param) {
      local(variable);
    } else {
      fail("got the variable '" + variable.name + "' of a function in global memory, want it in the module");
    }
  }
  places_[index] = std::move(places);
  program_->functions[index] = std::move(code);
}

void Decoder::lay_out_registers(std::size_t index) {
  const Function& function = module().functions[index];
  std::vector<Slot>& slots = registers_[index];
  // Predicates first: they are small and used together.
  slots.resize(function.registers.size());
  for (const bool predicates : {true, false})
    for (std::size_t i = 0; i < function.registers.size(); ++i)
      if ((function.registers[i].kind == 'p') == predicates) slots[i] = new_register(function.registers[i].bits);
}

std::uint32_t Decoder::function_index(const std::string& name) const {
  for (std::size_t i = 0; i < program_->functions.size(); ++i)
    if (program_->functions[i].name == name) return static_cast<std::uint32_t>(i);
  return kNone;
}

// ---- operands ----

Slot Decoder::constant(std::uint64_t bits, bool wide) {
  auto& known = wide ? wide_ : narrow_;
  const auto [at, fresh] = known.emplace(bits, 0);
  if (!fresh) return at->second;
  std::vector<std::uint8_t>& pool = program_->constants;
  pool.resize(aligned<std::size_t>(pool.size(), 64));
  at->second = static_cast<Slot>(pool.size()) | kConstant;
  const std::size_t size = wide ? 8 : 4;
  for (int i = 0; i < kLanes; ++i)
    for (std::size_t k = 0; k < size; ++k) pool.push_back(static_cast<std::uint8_t>(bits >> (8 * k)));
  return at->second;
}

Slot Decoder::mask_constant(Mask mask) { return constant(mask, false); }

Slot Decoder::scratch(bool wide) { return new_register(wide ? 64 : 32); }

std::uint32_t Decoder::add_extra(std::uint32_t value) {
  program_->extra.push_back(value);
  return static_cast<std::uint32_t>(program_->extra.size() - 1);
}

int Decoder::register_bits(const Operand& operand) const {
  if (operand.kind != Operand::Kind::name) return 0;
  const auto found = function_->register_index.find(operand.name);
  return found == function_->register_index.end() ? 0 : function_->registers[found->second].bits;
}

bool Decoder::address_of(const std::string& name, std::uint64_t& out) const {
  const auto& own = places_[function_at_];
  auto found = own.find(name);
  if (found == own.end()) {
    found = module_places_.find(name);
    if (found == module_places_.end()) {
      const std::uint32_t function = function_index(name);
      if (function == kNone) return false;
      out = kCodeWindow + function;
      return true;
    }
  }
  out = found->second.second;
  if (found->second.first == Space::param) out += kParamWindow;
  return true;
}

Slot Decoder::named_value(const Operand& operand, bool wide) {
  if (const auto found = function_->register_index.find(operand.name); found != function_->register_index.end()) {
    const int bits = function_->registers[found->second].bits;
    if (bits == 1) fail("got the predicate " + operand.name + ", want a register");
    if ((bits == 64) != wide)
      fail("got register " + operand.name + " of " + std::to_string(bits) + " bits, want one of " +
           (wide ? "64" : "32"));
    return registers_[function_at_][found->second];
  }
  if (Slot out = 0; special(operand.name, out)) {
    if (wide) fail("got " + operand.name + " in 64 bits, want 32");
    return out;
  }
  if (operand.name == "%smid" || operand.name == "%gridid") return constant(0, wide);
  if (operand.name == "%nsmid") return constant(1, wide);
  if (operand.name == "WARP_SZ") return constant(kLanes, wide);
  if (std::uint64_t address = 0; address_of(operand.name, address))
    return constant(address + static_cast<std::uint64_t>(operand.number), wide);
  if (operand.name.starts_with("%clock") || operand.name.starts_with("%envreg") || operand.name.starts_with("%cluster"))
    fail("got " + operand.name + ", which device ptx does not have here");
  fail("got unknown operand '" + operand.name + "', want a register or a variable");
}

Slot Decoder::value(const Operand& operand, const Type& as) {
  const bool wide = as.width() == 64;
  if (as.width() > 64) fail("got a type of 128 bits, which device ptx does not run");
  switch (operand.kind) {
    case Operand::Kind::name: return named_value(operand, wide);
    case Operand::Kind::integer: {
      const int width = as.width();
      const auto bits = static_cast<std::uint64_t>(operand.number);
      return constant(width >= 64 ? bits : bits & ((std::uint64_t{1} << width) - 1), wide);
    }
    case Operand::Kind::real: {
      if (wide) return constant(std::bit_cast<std::uint64_t>(operand.real), true);
      return constant(std::bit_cast<std::uint32_t>(static_cast<float>(operand.real)), false);
    }
    default: fail("got an address or a vector as operand of " + statement_->text() + ", want a value");
  }
}

Slot Decoder::result(const Operand& operand, const Type& as) {
  if (operand.kind == Operand::Kind::sink) return scratch(as.width() == 64);
  if (operand.kind != Operand::Kind::name || !function_->register_index.contains(operand.name))
    fail("got '" + operand.name + "' for the result of " + statement_->text() + ", want a register");
  return named_value(operand, as.width() == 64);
}

Slot Decoder::predicate(const Operand& operand) {
  if (operand.kind == Operand::Kind::integer) return mask_constant(operand.number != 0 ? kAll : 0);
  const auto found = function_->register_index.find(operand.name);
  if (operand.kind != Operand::Kind::name || found == function_->register_index.end() ||
      function_->registers[found->second].bits != 1)
    fail("got '" + operand.name + "', want a predicate");
  return registers_[function_at_][found->second];
}

Slot Decoder::predicate_result(const Operand& operand) {
  if (operand.kind == Operand::Kind::sink) return new_register(1);
  return predicate(operand);
}

void Decoder::address(const Operand& operand, Space& space, Instruction& in) {
  if (operand.kind != Operand::Kind::address) fail("got no address, want such as [%rd1+4]");
  in.number = operand.number;
  if (operand.name.empty()) {
    in.from[0] = constant(0, true);
    return;
  }
  if (const auto found = function_->register_index.find(operand.name); found != function_->register_index.end()) {
    const int bits = function_->registers[found->second].bits;
    if (bits != 32 && bits != 64)
      fail("got register " + operand.name + " of " + std::to_string(bits) + " bits as an address, want 64");
    if (space == Space::param) space = Space::generic;  // an address of its own kind says that it is a parameter
    in.narrow_address = bits == 32;
    in.from[0] = registers_[function_at_][found->second];
    return;
  }
  std::uint64_t at = 0;
  if (!address_of(operand.name, at)) fail("got unknown address '" + operand.name + "', want a register or a variable");
  if (at >> 56 == kParamWindow >> 56) {
    space = Space::param;
    in.number += static_cast<std::int64_t>(at - kParamWindow);
    return;
  }
  if (space == Space::param) space = Space::local;  // of a function or of a call: the thread's own
  in.from[0] = constant(at, true);
}

// ---- instructions ----

void Decoder::one(const Statement& statement, Instruction& in) {
  in.place = static_cast<std::uint32_t>(statement.place);
  in.line = static_cast<std::uint32_t>(statement.line);
  if (!statement.guard.empty()) {
    Operand guard;
    guard.name = statement.guard;
    in.guard = predicate(guard);
  }
  in.number_of_it = number_of(statement.words);
  const auto keep_guard = [&] { in.guard_negated = statement.guard_negated; };
  for (const auto decode_part :
       {&decode_move, &decode_memory, &decode_integer, &decode_float, &decode_half, &decode_compare, &decode_convert,
        &decode_bits, &decode_warp, &decode_atomic, &decode_matrix, &decode_wmma, &decode_flow})
    if (decode_part(*this, in)) return keep_guard();
  fail("got unknown instruction '" + statement.text() +
       "', want one of PTX that device ptx runs (ampcheck explain gpu-kernels)");
}

void Decoder::branch_targets(const Function& function, const Statement& statement, Instruction& in) {
  const auto at = [&](const std::string& label) {
    const auto found = function.labels.find(label);
    if (found == function.labels.end()) fail("got the unknown label '" + label + "'");
    return program_->functions[function_at_].first + found->second;
  };
  if (in.flow == Flow::branch) in.target = at(statement.operands[0].name);
  if (in.flow == Flow::indexed) {
    const auto table = function.tables.find(statement.operands[1].name);
    if (table == function.tables.end() || table->second.empty()) fail("got no table of branches");
    in.more = add_extra(static_cast<std::uint32_t>(table->second.size()));
    for (const std::string& label : table->second) add_extra(at(label));
  }
}

/// extra: number of arguments, place and bytes of each, then the same of the results.
void Decoder::call(Instruction& in) {
  std::size_t next = 0;
  const std::vector<Operand> none;
  const std::vector<Operand>*results = &none, *arguments = &none;
  if (operand(0).kind == Operand::Kind::list) results = &operand(next++).parts;
  const Operand& callee = operand(next++);
  if (next < operands() && operand(next).kind == Operand::Kind::list) arguments = &operand(next).parts;
  if (register_bits(callee) == 64)
    in.from[0] = value(callee, {'b', 64, 1, "b64"});
  else if ((in.target = function_index(callee.name)) == kNone)
    fail("got a call of the unknown function '" + callee.name + "'");
  in.more = static_cast<std::uint32_t>(program_->extra.size());
  for (const auto* const list : {arguments, results}) {
    add_extra(static_cast<std::uint32_t>(list->size()));
    for (const Operand& part : *list) {
      const auto found = places_[function_at_].find(part.name);
      if (found == places_[function_at_].end() || found->second.first != Space::local)
        fail("got '" + part.name + "' as an argument, want a variable of .param space");
      add_extra(static_cast<std::uint32_t>(found->second.second));
      std::uint32_t bytes = 0;
      for (const auto* const all : {&function_->variables, &function_->params, &function_->returns})
        for (const Variable& variable : *all)
          if (variable.name == part.name) bytes = static_cast<std::uint32_t>(variable.bytes);
      add_extra(bytes);
    }
  }
}

void Decoder::body(std::size_t index) {
  const Function& function = module().functions[index];
  function_ = &function;
  function_at_ = index;
  lay_out_registers(index);
  Routine& routine = program_->functions[index];
  routine.first = static_cast<std::uint32_t>(program_->code.size());
  for (const Statement& statement : function.body) {
    statement_ = &statement;
    Instruction in;
    one(statement, in);
    for (const std::string& word : statement.words) {
      routine.fp16 |= word == "f16" || word == "f16x2";
      routine.bf16 |= word == "bf16" || word == "bf16x2";
    }
    branch_targets(function, statement, in);
    if (in.flow == Flow::call) call(in);
    program_->code.push_back(in);
  }
  Instruction end;
  end.flow = Flow::ret;
  end.place = program_->code.empty() ? 0 : program_->code.back().place;
  if (function.defined) program_->code.push_back(end);
  routine.last = static_cast<std::uint32_t>(program_->code.size());
  routine.register_end = aligned(program_->register_bytes, 64u) + 64;
  statement_ = nullptr;
}

/// Calls visit for each function: kernels come last, and each finds `at` as the functions before them have left it. In
/// the end it is the largest.
template <class Visit>
void Decoder::each_function(std::uint32_t& at, Visit visit) {
  for (std::size_t i = 0; i < module().functions.size(); ++i)
    if (!module().functions[i].entry) visit(i);
  const std::uint32_t shared = at;
  std::uint32_t most = at;
  for (std::size_t i = 0; i < module().functions.size(); ++i) {
    if (!module().functions[i].entry) continue;
    at = shared;
    visit(i);
    most = std::max(most, at);
  }
  at = most;
}

std::shared_ptr<const Program> Decoder::all() {
  lay_out_globals();
  specials();
  const std::size_t functions = module().functions.size();
  program_->functions.resize(functions);
  places_.resize(functions);
  registers_.resize(functions);
  // One kernel runs at a time: what is its own lies where that of the others lies, behind that of what it may call.
  each_function(program_->local_bytes, [&](std::size_t i) { lay_out(i); });
  std::uint64_t shared = 0;
  for (const auto& named : program_->shared_names) shared = std::max(shared, named.at + named.bytes);
  // What the launch adds begins behind all that is static.
  shared = aligned<std::uint64_t>(shared, 16);
  if (shared > (1u << 24)) fail("got more than 16 MiB of shared memory");
  const auto dynamic = [&](const Variable& variable, auto& places) {
    if (variable.space == Space::shared && variable.bytes == 0) places[variable.name] = {Space::shared, shared};
  };
  for (const Variable& variable : module().variables) dynamic(variable, module_places_);
  for (std::size_t i = 0; i < module().functions.size(); ++i)
    for (const Variable& variable : module().functions[i].variables) dynamic(variable, places_[i]);
  for (Routine& code : program_->functions) code.shared_bytes = static_cast<std::uint32_t>(shared);
  each_function(program_->register_bytes, [&](std::size_t i) {
    if (module().functions[i].defined) body(i);
  });
  function_at_ = 0;
  for (const Variable& variable : module().variables)
    for (const Variable::Address& address : variable.addresses) {
      const auto at = module_places_.find(variable.name);
      std::uint64_t value = 0;
      if (at == module_places_.end() || places_.empty() || !address_of(address.of, value))
        fail("got unknown '" + address.of + "' in the values of '" + variable.name + "'");
      value += static_cast<std::uint64_t>(address.plus);
      std::memcpy(program_->globals.data() + (at->second.second - kGlobalWindow) + address.at, &value, sizeof value);
    }
  program_->constants.resize(aligned<std::size_t>(program_->constants.size(), 64) + 64);
  return program_;
}

const Routine* Program::entry(const std::string& name) const {
  for (const Routine& code : functions)
    if (code.entry && code.defined && code.name == name) return &code;
  return nullptr;
}

namespace {
std::atomic<bool> fuses{false};
}

void set_decode_options(DecodeOptions options) { fuses = options.fuse; }
DecodeOptions decode_options() { return {.fuse = fuses}; }

std::vector<KernelFacts> kernels_of(const Module& module) {
  Module alone;  // what kernels share, and then one of them
  alone.path = module.path;
  alone.version = module.version;
  alone.target = module.target;
  alone.files = module.files;
  alone.places = module.places;
  alone.variables = module.variables;
  for (const Function& function : module.functions)
    if (!function.entry) alone.functions.push_back(function);
  std::vector<KernelFacts> out;
  for (const Function& function : module.functions) {
    if (!function.entry) continue;
    KernelFacts facts{function.name, {}, ""};
    for (const Variable& parameter : function.params) facts.parameters.push_back(parameter.bytes);
    try {
      Module one = alone;
      one.functions.push_back(function);
      decode(std::move(one));
    } catch (const PtxError& error) {
      facts.why_not = error.what();
    }
    out.push_back(std::move(facts));
  }
  return out;
}

std::shared_ptr<const Program> decode(Module module, DecodeOptions options) {
  if (options.fuse) fuse_products(module);
  return Decoder(std::move(module)).all();
}

}  // namespace ampcheck::ptx
