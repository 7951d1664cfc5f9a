// SPDX-License-Identifier: Apache-2.0
// Runs seldom, so it is built with -O1 (tools/cmake/flags.cmake).
#include "src/ptx/fuse.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace ampcheck::ptx {

namespace {

bool has(const Statement& s, const char* word) {
  return std::find(s.words.begin() + 1, s.words.end(), word) != s.words.end();
}

/// "f32", "f16x2", ...; empty where the statement is no plain float arithmetic, or says how it rounds.
std::string open_type(const Statement& s) {
  if (s.words.size() < 2 || s.operands.size() != 3 || has(s, "sat")) return "";
  for (const char* rounding : {"rn", "rz", "rm", "rp"})
    if (has(s, rounding)) return "";
  for (const char* type : {"f32", "f64", "f16", "f16x2", "bf16", "bf16x2"})
    if (has(s, type)) return std::string(type) + (has(s, "ftz") ? ".ftz" : "");
  return "";
}

/// A product whose factors are as they were when it was made.
struct Product {
  std::string type;
  Operand a, b;
};

class Fuser {
 public:
  explicit Fuser(Function& function) : function_(function) {
    for (const auto& [label, at] : function.labels) starts_.insert(at);
  }

  int run() {
    int fused = 0;
    for (std::size_t i = 0; i < function_.body.size(); ++i) {
      Statement& s = function_.body[i];
      if (starts_.contains(static_cast<std::uint32_t>(i))) products_.clear();
      if (s.guard.empty() && (s.words[0] == "add" || s.words[0] == "sub")) fused += fuse(s);
      const bool makes = s.guard.empty() && s.words[0] == "mul" && !open_type(s).empty();
      forget(s);
      if (makes && !is(s.operands[1], s.operands[0].name) && !is(s.operands[2], s.operands[0].name))
        products_[s.operands[0].name] = {open_type(s), s.operands[1], s.operands[2]};
      if (s.words[0] == "bra" || s.words[0] == "call" || s.words[0] == "brx") products_.clear();
    }
    return fused;
  }

 private:
  static bool is(const Operand& operand, const std::string& name) {
    return operand.kind == Operand::Kind::name && operand.name == name;
  }

  int fuse(Statement& s) {
    const std::string type = open_type(s);
    if (type.empty()) return 0;
    for (const std::size_t side : {std::size_t{1}, std::size_t{2}}) {
      if (s.operands[side].kind != Operand::Kind::name) continue;
      const auto found = products_.find(s.operands[side].name);
      if (found == products_.end() || found->second.type != type) continue;
      const bool difference = s.words[0] == "sub";
      s.words[0] = "fma";
      s.words.insert(s.words.begin() + 1, "rn");
      if (difference) s.words.emplace_back(side == 1 ? kMinusSum : kMinusProduct);
      s.operands = {s.operands[0], found->second.a, found->second.b, s.operands[3 - side]};
      return 1;
    }
    return 0;
  }

  /// Whatever a statement may write is another number now.
  void forget(const Statement& s) {
    std::set<std::string> written;
    const auto add = [&](const auto& self, const Operand& operand) -> void {
      if (operand.kind == Operand::Kind::name) written.insert(operand.name);
      for (const Operand& part : operand.parts) self(self, part);
    };
    if (!s.operands.empty()) add(add, s.operands[0]);
    std::erase_if(products_, [&](const auto& product) {
      return written.contains(product.first) ||
             (product.second.a.kind == Operand::Kind::name && written.contains(product.second.a.name)) ||
             (product.second.b.kind == Operand::Kind::name && written.contains(product.second.b.name));
    });
  }

  Function& function_;
  std::set<std::uint32_t> starts_;
  std::map<std::string, Product> products_;
};

}  // namespace

int fuse_products(Module& module) {
  int out = 0;
  for (Function& function : module.functions) out += Fuser(function).run();
  return out;
}

}  // namespace ampcheck::ptx
