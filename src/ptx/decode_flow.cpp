// SPDX-License-Identifier: Apache-2.0
// Branches, calls, barriers, and what a simulator has nothing to do for.
#include <algorithm>

#include "src/ptx/decode.h"
#include "src/ptx/machine.h"

namespace ampcheck::ptx {

namespace {

constexpr Type kWord{'b', 32, 1, "b32"}, kWide{'b', 64, 1, "b64"};

void nothing(Warp&, const Instruction&) {}
void fence(Warp& w, const Instruction&) { w.machine->fence(); }

bool branch(Decoder& d, Instruction& in) {
  d.want_operands(1, 1);
  in.flow = Flow::branch;
  in.number = -1;  // the label is found when the function is laid out
  return true;
}

bool indexed(Decoder& d, Instruction& in) {
  if (d.operands() < 2) d.fail("want an index and a table");
  in.flow = Flow::indexed;
  in.from[0] = d.value(d.operand(0), kWord);
  return true;
}

/// Barrier: from[0] id, from[1] threads, from[2] predicate of a reduction; number: 0 sync, 1 arrive, 2 popc, 3 and, 4
/// or.
bool barrier(Decoder& d, Instruction& in, Words& words) {
  in.flow = Flow::barrier;
  words.take("cta");
  words.take("aligned");
  if (words.take("cluster")) d.fail("got a barrier of a cluster of blocks, which device ptx does not run");
  std::size_t next = 0;
  if (words.take("arrive")) {
    in.number = 1;
  } else if (words.take("red")) {
    in.number = words.take("popc") ? 2 : words.take("and") ? 3 : words.take("or") ? 4 : 0;
    Type t;
    words.take_type(t);
    if (in.number == 0) d.fail("got no reduction, want .popc, .and or .or");
    in.to[0] = in.number == 2 ? d.result(d.operand(0), kWord) : d.predicate_result(d.operand(0));
    in.from[2] = d.predicate(d.operand(d.operands() - 1));
    in.guard_negated = false;
    in.bytes = d.operand(d.operands() - 1).negated ? 1 : 0;
    next = 1;
  } else if (!words.take("sync")) {
    d.fail("got '" + d.statement().text() + "', want .sync, .arrive or .red");
  }
  const std::size_t end = in.number >= 2 ? d.operands() - 1 : d.operands();
  if (next >= end) d.fail("got no barrier, want its number");
  in.from[0] = d.value(d.operand(next++), kWord);
  if (next < end) in.from[1] = d.value(d.operand(next), kWord);
  return true;
}

/// Its operands are names of variables and functions, which the decoder itself reads.
bool call(Instruction& in, Words& words) {
  words.take("uni");
  in.flow = Flow::call;
  in.more = kNone;
  return true;
}

constexpr const char* kRefused[][2] = {{"tex", "textures"},
                                       {"tld4", "textures"},
                                       {"txq", "textures"},
                                       {"suld", "surfaces"},
                                       {"sust", "surfaces"},
                                       {"suq", "surfaces"},
                                       {"mbarrier", "barriers in memory (mbarrier)"},
                                       {"wgmma", "matrix products of warp groups (wgmma)"},
                                       {"tcgen05", "the tensor memory (tcgen05)"},
                                       {"mapa", "clusters of blocks"},
                                       {"getctarank", "clusters of blocks"},
                                       {"multimem", "memory of several GPUs"},
                                       {"tensormap", "the tensor memory accelerator"},
                                       {"stackrestore", "a stack of its own"},
                                       {"stacksave", "a stack of its own"},
                                       {"alloca", "a stack of its own"}};

}  // namespace

bool decode_flow(Decoder& d, Instruction& in) {
  const std::string& root = d.statement().words[0];
  Words words(d.statement().words);
  for (const auto& [word, what] : kRefused)
    if (root == word) d.fail("got '" + d.statement().text() + "': " + what + ", which device ptx does not run");
  bool known = true;
  if (root == "bra") {
    words.take("uni");
    known = branch(d, in);
  } else if (root == "brx") {
    words.take("idx");
    words.take("uni");
    known = indexed(d, in);
  } else if (root == "ret" || root == "exit") {
    words.take("uni");
    in.flow = root == "ret" ? Flow::ret : Flow::exit;
  } else if (root == "call") {
    known = call(in, words);
  } else if (root == "bar" || root == "barrier") {
    known = barrier(d, in, words);
  } else if (root == "trap" || root == "brkpt") {
    in.flow = Flow::trap;
  } else if (root == "membar" || root == "fence" || root == "nanosleep" || root == "pmevent" ||
             root == "griddepcontrol" || root == "setmaxnreg") {
    in.run = root == "membar" || root == "fence"
                 ? &fence
                 : &nothing;  // memory is in order here; who has to wait for whom is what the shadow memory watches
    return true;
  } else {
    return false;
  }
  d.want_all(words);
  return known;
}

}  // namespace ampcheck::ptx
