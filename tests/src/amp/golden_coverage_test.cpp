// SPDX-License-Identifier: Apache-2.0
// Every fact of torch's records is matched by a test, or left out with a reason that `ampcheck explain torch` prints.
#include "tests/support/golden_coverage.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/support/run_program.h"
#include "tools/commands/torch_differences.h"

namespace ampcheck::tests {

void each_leaf(Golden& golden, const std::string& path, const std::function<void(Golden&, const std::string&)>& visit,
               bool any_index) {
  if (!golden.is_object() && !golden.is_list()) return visit(golden, path);
  for (std::size_t i = 0; i < golden.items.size(); ++i) {
    const std::string key = golden.is_object() ? golden.keys[i] : any_index ? "*" : std::to_string(i);
    if ((key == "value" || key == "bits") && golden.contains("hex")) continue;
    each_leaf(golden.items[i], path + "/" + key, visit, any_index);
  }
}

void change(Golden& leaf) {
  using Kind = Golden::Kind;
  if (leaf.kind == Kind::boolean)
    leaf.truth = !leaf.truth;
  else if (leaf.kind == Kind::number)
    leaf.value += 1;
  else if (!leaf.is_text()) {
    leaf.kind = Kind::text;
    leaf.text = "something";
  } else if (leaf.text.starts_with("0x") || leaf.text.starts_with("-0x") || leaf.text == "inf" || leaf.text == "-inf" ||
             leaf.text == "nan")
    leaf.text = "0x1.5p+3";
  else {
    static const std::map<std::string, std::string> dtypes = {{"float32", "float64"},  {"float64", "float32"},
                                                              {"float16", "bfloat16"}, {"bfloat16", "float16"},
                                                              {"int64", "int32"},      {"int32", "int64"}};
    const auto other = dtypes.find(leaf.text);
    leaf.text = other != dtypes.end() ? other->second : "not " + leaf.text;
  }
}

std::vector<GoldenPlay>& golden_plays() {
  static std::vector<GoldenPlay> all;
  return all;
}

bool notices(const std::function<void(const Golden&)>& play, const Golden& entry) {
  ::testing::TestPartResultArray failures;
  try {
    ::testing::ScopedFakeTestPartResultReporter quiet(
        ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &failures);
    play(entry);
  } catch (const std::exception&) {  // what it became names nothing
    return true;
  }
  return failures.size() > 0;
}

namespace {

std::vector<std::string> parts_of(const std::string& path) {
  std::vector<std::string> out;
  for (std::size_t begin = 1; begin <= path.size();
       begin = path.find('/', begin) == std::string::npos ? path.size() + 1 : path.find('/', begin) + 1)
    out.push_back(path.substr(begin, path.find('/', begin) - begin));
  return out;
}

/// The path, or one that it lies below.
bool covers(const std::string& where, const std::string& path) {
  const std::vector<std::string> wide = parts_of(where), narrow = parts_of(path);
  return wide.size() <= narrow.size() &&
         std::equal(wide.begin(), wide.end(), narrow.begin(),
                    [](const std::string& a, const std::string& b) { return a == "*" || a == b; });
}

struct LeftOut {
  std::string where;
  bool used = false;
};

/// What tools/commands/torch_differences.cpp says of a file.
class Reasons {
 public:
  explicit Reasons(const std::string& file) {
    for (const tools::TorchDifference& d : tools::torch_differences())
      if (d.file == file || std::string(d.file) == "*") all_.push_back({d.where, std::string(d.file) == "*"});
  }
  bool leaves_out(const std::string& path) {
    bool found = false;
    for (LeftOut& reason : all_)
      if (covers(reason.where, path)) found = reason.used = true;
    return found;
  }
  std::string unused() const {
    std::string out;
    for (const LeftOut& reason : all_)
      if (!reason.used) out += reason.where + " ";
    return out;
  }

 private:
  std::vector<LeftOut> all_;
};

std::string name_of(const Golden& entry) {
  for (const char* key : {"name", "op"})
    if (const Golden* name = entry.is_object() ? entry.find(key) : nullptr) return name->text;
  return "";
}

/// Paths of leaves of a list's entries at whose change nothing is noticed, wherever they stand.
std::set<std::string> unnoticed(const GoldenPlay& play, const Golden& list, Reasons& reasons) {
  std::map<std::string, bool> noticed;
  const bool one = !list.is_list();
  for (std::size_t i = 0; i < (one ? 1 : list.size()); ++i) {
    Golden entry = one ? list : list[i];
    if (!one && reasons.leaves_out("/" + play.list + "[" + name_of(entry) + "]")) continue;
    if (notices(play.play, entry)) {
      ADD_FAILURE() << play.file << " " << play.list << " " << name_of(entry) << ", got another than torch's";
      continue;
    }
    std::map<std::string, int> tried;
    each_leaf(
        entry, "/" + play.list + (one ? "" : "/*"),
        [&](Golden& leaf, const std::string& path) {
          bool& seen = noticed.try_emplace(path, false).first->second;
          if (seen || tried[path]++ >= 2) return;
          const Golden before = leaf;
          change(leaf);
          seen = notices(play.play, entry);
          leaf = before;
        },
        true);
  }
  std::set<std::string> out;
  for (const auto& [path, seen] : noticed)
    if (!seen) out.insert(path);
  return out;
}

/// Of a file, what nobody notices.
std::set<std::string> unnoticed_of(const std::string& file, const Golden& golden, Reasons& reasons) {
  std::set<std::string> out;
  for (std::size_t i = 0; i < golden.size(); ++i) {
    GoldenPlay all{file, golden.keys[i], nullptr};  // of this list, one after the other
    for (const GoldenPlay& p : golden_plays())
      if (p.file == file && p.list == all.list)
        all.play = [first = all.play, next = p.play](const Golden& entry) {
          if (first) first(entry);
          next(entry);
        };
    if (all.play) {
      out.merge(unnoticed(all, golden[i], reasons));
      continue;
    }
    Golden rest = golden[i];
    each_leaf(
        rest, "/" + golden.keys[i], [&](Golden&, const std::string& path) { out.insert(path); }, true);
  }
  return out;
}

class GoldenFile : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenFile, EveryFactIsMatchedOrLeftOutWithAReason) {
  AMPCHECK_GOLDEN_OR_SKIP(golden, GetParam());
  Reasons reasons(GetParam());
  for (const GoldenPlay& play : golden_plays()) {
    EXPECT_TRUE(play.file != GetParam() || golden.contains(play.list)) << play.list << ", got no such list";
  }
  for (const std::string& path : unnoticed_of(GetParam(), golden, reasons))
    EXPECT_TRUE(reasons.leaves_out(path)) << path << " is matched by no test and left out without a reason";
  EXPECT_EQ(reasons.unused(), "") << "left out with a reason, but not there or matched";
}

INSTANTIATE_TEST_SUITE_P(Files, GoldenFile,
                         ::testing::Values("grad_scaler_traces.json", "unscale_kernel.json", "autocast_cpu.json",
                                           "autocast_cuda_tables.json", "optimizers.json", "training_run.json",
                                           "sharded_grad_scaler.json"),
                         [](const auto& info) {
                           return std::string(info.param).substr(0, std::string(info.param).find('.'));
                         });

TEST(GoldenCoverage, AFactThatNobodyReadsIsSeen) {
  Golden number, entry, list;
  number.kind = Golden::Kind::number;
  number.value = 2;
  entry.kind = Golden::Kind::object;
  entry.keys = {"read", "unread"};
  entry.items = {number, number};
  list.kind = Golden::Kind::list;
  list.items = {entry, entry};
  const GoldenPlay half{"none.json", "list", [](const Golden& e) { EXPECT_EQ(e.at("read").value, 2); }};
  Reasons none("none.json");
  EXPECT_EQ(unnoticed(half, list, none), std::set<std::string>{"/list/*/unread"});
  EXPECT_TRUE(covers("/list/*/unread", "/list/*/unread/hex") && covers("/*/*/unread", "/list/*/unread") &&
              !covers("/list/*/unread/hex", "/list/*/unread") && !covers("/list/*/un", "/list/*/unread"));
}

TEST(GoldenCoverage, TheReasonsArePrinted) {
  using ampcheck::testing::ampcheck;
  const std::string text = ampcheck("explain torch").out, json = ampcheck("explain torch --json").out;
  for (const tools::TorchDifference& d : tools::torch_differences()) {
    EXPECT_TRUE(ampcheck::testing::contains(text, d.where) && ampcheck::testing::contains(text, d.reason)) << d.where;
    EXPECT_TRUE(ampcheck::testing::contains(json, d.where)) << d.where;
  }
}

}  // namespace
}  // namespace ampcheck::tests
