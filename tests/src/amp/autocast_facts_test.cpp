// SPDX-License-Identifier: Apache-2.0
// What torch's regions and promotion were seen to do (the "facts" of autocast_cpu.json), played with ours; the cache,
// backward passes and custom functions have files of their own. That a play reads a fact is shown by changing it: every
// number, word and flag, one after the other.
#include "tests/support/autocast_facts.h"

namespace ampcheck::autocast_facts {
namespace {

std::string nesting(const Golden& fact) {
  Differences d;
  std::map<std::string, AutocastState> seen;
  seen["outside"] = autocast_state(kCpu);
  {
    const Autocast outer(kCpu, region(low_of(fact)));
    seen["outer"] = autocast_state(kCpu);
    {
      const Autocast disabled(kCpu, off());
      seen["disabled_inside"] = autocast_state(kCpu);
      const Autocast inner(kCpu, region(other_of(fact)));
      seen["other_dtype_inside_disabled"] = autocast_state(kCpu);
    }
    {
      const Autocast inner(kCpu, region(other_of(fact)));
      seen["other_dtype_inside"] = autocast_state(kCpu);
    }
    {
      const Autocast inner(kCpu);
      seen["no_dtype_given_inside"] = autocast_state(kCpu);
    }
    seen["outer_again"] = autocast_state(kCpu);
  }
  seen["after"] = autocast_state(kCpu);
  for (const Golden& where : fact.at("result")) {
    const std::string& name_of = where.at("where").text;
    const AutocastState& state = seen.at(name_of);
    d.same_state(name_of, state, where);
    for (const auto& [key, dtype] : {std::pair("mm", Dtype::fp32), {"mm_fp32", Dtype::fp32}, {"mm_low", low_of(fact)}})
      if (const Golden* want = where.find(key))
        d.same(name_of + " " + key, mm(state, dtype, dtype), std::optional(dtype_of(want->text)));
    if (const Golden* mixed = where.find("mm_mixed"))
      d.same(name_of + " mm_mixed", mm(state, low_of(fact), Dtype::fp32).has_value(), !mixed->contains("error"));
  }
  return d.text();
}

std::string restored_on_exception(const Golden& fact) {
  Differences d;
  try {
    const Autocast uncached(kCpu, {.dtype = low_of(fact), .cache_enabled = false});
    const Autocast disabled(kCpu, off());
    throw std::invalid_argument("boom");
  } catch (const std::invalid_argument&) {
  }
  d.same_state("after", autocast_state(kCpu), fact.at("result").at("after_exception"));
  d.same("mm", mm(), std::optional(dtype_of(fact.at("result").at("mm").text)));
  return d.text();
}

std::string new_thread(const Golden& fact) {
  Differences d;
  const Golden& result = fact.at("result");
  AutocastState bare;
  std::optional<Dtype> in_bare, in_own;
  const Autocast main(kCpu, region(low_of(fact)));
  std::thread([&] {
    bare = autocast_state(kCpu);
    in_bare = mm();
    const Autocast own(kCpu, region(low_of(fact)));
    in_own = mm();
  }).join();
  d.same_state("new thread", bare, result.at("new_thread"));
  d.same("mm in it", in_bare, std::optional(dtype_of(result.at("new_thread").at("mm").text)));
  d.same("mm in its own region", in_own, std::optional(dtype_of(result.at("new_thread_own_region").text)));
  d.same_state("main thread", autocast_state(kCpu), result.at("main_still"));
  return d.text();
}

std::string order_and_foreign_dtypes(const Golden& fact) {
  Differences d;
  const Dtype low = low_of(fact);
  const std::map<std::string, Dtype> words = {{"low", low},          {"other", other_of(fact)}, {"fp32", Dtype::fp32},
                                              {"fp64", Dtype::fp64}, {"int", Dtype::i64},       {"fp8", Dtype::e4m3fn}};
  const Golden& result = fact.at("result");
  for (std::size_t i = 0; i < result.size(); ++i) {
    std::vector<std::string> parts;
    for (std::size_t at = 0; at <= result.keys[i].size();) {
      const std::size_t end = std::min(result.keys[i].find('_', at), result.keys[i].size());
      parts.push_back(result.keys[i].substr(at, end - at));
      at = end + 1;
    }
    if (parts[0] == "narrowing" || result.keys[i] == "mse_int_int") continue;
    std::vector<Dtype> inputs;
    for (std::size_t k = 1; k < parts.size(); ++k) inputs.push_back(words.at(parts[k]));
    if (parts[1] == "fp8") inputs.push_back(parts[0] == "add" ? low : Dtype::e4m3fn);
    std::string got, error;
    try {
      const CastDecision decision =
          decide_casts(cast_policy(kCpu, parts[0] == "mse" ? "mse_loss" : parts[0]), {true, low, true}, inputs);
      const bool mixed = decision.inputs.front() != decision.inputs.back();
      got = parts[0] == "mm" && mixed ? "error" : name(promoted_dtype(decision.inputs));  // mm itself promotes nothing
    } catch (const AmpError& e) {
      got = "error";
      error = e.what();
    }
    const Golden* const seen = result[i].find("error");
    d.same(result.keys[i], got, seen != nullptr ? "error" : std::string(name(dtype_of(result[i].text))));
    if (seen != nullptr && !error.empty())
      d.same(result.keys[i] + " text", seen->at("message").text.starts_with(error), true);
  }
  return d.text();
}

const Plays own_plays{{"region/nesting", nesting, {"/mm_mixed/error/"}},
                      {"region/restored_on_exception", restored_on_exception},
                      {"region/new_thread", new_thread},
                      {"mixing/order_and_foreign_dtypes",
                       order_and_foreign_dtypes,
                       {"/error/type", "/mm_", "/mse_int_int/", "/narrowing_"}}};

/// Facts that nothing of ours can be held against.
std::set<std::string> left_out() {
  std::set<std::string> names;
  const std::string begin = "/facts[";
  for (const tools::TorchDifference& d : tools::torch_differences())
    if (const std::string where = d.where; where.starts_with(begin))
      names.insert(where.substr(begin.size(), where.size() - begin.size() - 1));
  return names;
}

const tests::Played played_facts("autocast_cpu.json", "facts", [](const Golden& fact) {
  const Play* const play = play_of(fact);
  ASSERT_NE(play, nullptr) << fact.at("name").text;
  EXPECT_EQ(play->differences(fact), "");
});

TEST(AutocastFacts, EachIsPlayedOrLeftOutWithAReason) {
  AMPCHECK_GOLDEN_OR_SKIP(golden, "autocast_cpu.json");
  std::set<std::string> used;
  int leaves = 0;
  for (const Golden& fact : golden.at("facts")) {
    const std::string& name_of = fact.at("name").text;
    SCOPED_TRACE(name_of + " in " + fact.at("autocast_dtype").text);
    const Play* const play = play_of(fact);
    EXPECT_NE(play != nullptr, left_out().contains(name_of)) << "want the one or the other";
    used.insert(play != nullptr ? play->begins : name_of);
    if (play == nullptr) continue;
    EXPECT_EQ(play->differences(fact), "");
    Golden changed = fact;
    tests::each_leaf(changed.items[static_cast<std::size_t>(
                         std::find(changed.keys.begin(), changed.keys.end(), "result") - changed.keys.begin())],
                     "", [&](Golden& leaf, const std::string& path) {
                       if (std::any_of(play->unread.begin(), play->unread.end(), [&](const std::string& part) {
                             return (path + "/").find(part) != std::string::npos;
                           }))
                         return;
                       const Golden before = leaf;
                       tests::change(leaf);
                       bool seen = true;
                       try {
                         seen = !play->differences(changed).empty();
                       } catch (const std::exception&) {  // what it became names nothing
                       }
                       EXPECT_TRUE(seen) << path << " is not read";
                       leaf = before;
                       ++leaves;
                     });
    EXPECT_FALSE(autocast_state(kCpu).enabled);
    EXPECT_EQ(cached_casts(), 0u);
  }
  for (const Play& play : plays()) EXPECT_TRUE(used.contains(play.begins)) << play.begins << ", got no such fact";
  for (const std::string& name_of : left_out()) EXPECT_TRUE(used.contains(name_of)) << name_of << ", got no such fact";
  EXPECT_GT(leaves, 700);
}

/// Planted: a play that reads a part of its fact alone is seen by what it leaves.
TEST(AutocastFacts, AFactThatIsReadInPartIsSeen) {
  AMPCHECK_GOLDEN_OR_SKIP(golden, "autocast_cpu.json");
  Golden fact;
  for (const Golden& each : golden.at("facts"))
    if (each.at("name").text == "region/restored_on_exception") fact = each;
  const auto in_part = [](const Golden& f) {
    Differences d;
    d.same("mm", mm(), std::optional(dtype_of(f.at("result").at("mm").text)));
    return d.text();
  };
  std::set<std::string> unseen;
  tests::each_leaf(fact, "", [&](Golden& leaf, const std::string& path) {
    const Golden before = leaf;
    tests::change(leaf);
    if (in_part(fact).empty()) unseen.insert(path);
    leaf = before;
  });
  EXPECT_EQ(unseen, (std::set<std::string>{"/name", "/autocast_dtype", "/result/after_exception/enabled",
                                           "/result/after_exception/dtype", "/result/after_exception/cache_enabled"}));
}

}  // namespace
}  // namespace ampcheck::autocast_facts
