// SPDX-License-Identifier: Apache-2.0
#include "src/op_call.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "src/error.h"
#include "src/suggestion.h"

namespace ampcheck {
namespace {

/// Like layer norm with a mask: optional parameters, an integer input, number and text attributes.
OpSignature norm_like() {
  OpSignature s;
  s.name = "norm_like";
  s.inputs = {{.name = "x", .dims = "N D"},
              {.name = "weight", .dims = "D", .role = Role::weight, .type = TypeRule::parameter, .optional = true},
              {.name = "bias", .dims = "E", .role = Role::bias, .type = TypeRule::parameter, .optional = true},
              {.name = "keep", .dims = "N", .role = Role::mask, .type = TypeRule::u8}};
  s.outputs = {{"y"}};
  s.attributes = {{"eps", 1e-5, {1e-3}}, {"reduction", std::string("mean"), {std::string("sum")}}};
  s.dims = {{"N", {5, 64, 2}}, {"D", {7, 129, 1025}}, {"E", {3, 3, 3}}};
  return s;
}

/// The message of the Error that parsing throws; empty if none.
std::string error_of(const std::string& text) {
  try {
    parse_call(text, norm_like());
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(OpCall, PrintsOnlyWhatIsNotDefault) {
  const OpSignature s = norm_like();
  OpCall call = default_call(s, Dtype::bf16);
  EXPECT_EQ(call.str(s), "norm_like(x=bf16[5,7],bias=bf16[3],seed=1)");
  call.dtypes["weight"] = Dtype::fp32;
  call.absent = {"bias"};
  call.attributes.set("eps", 1e-3);
  call.attributes.set("reduction", std::string("sum"));
  call.range = "near_max.weights";
  call.cotangent = "one_hot";
  call.layout = "padded:dx";
  call.seed = 42;
  EXPECT_EQ(call.str(s),
            "norm_like(x=bf16[5,7],weight=fp32,bias=none,eps=0.001,reduction=sum,range=near_max.weights,"
            "cotangent=one_hot,layout=padded:dx,seed=42)");
}

// The braces are what is tested: they compile with numbers of any type, mixed.
TEST(OpCall, AttributesTakeNumbersOfAnyType) {
  const AttributeSpec whole{"beta", 1, {0.5, 2}};
  EXPECT_EQ(whole.default_value, AttributeValue(1.0));
  EXPECT_EQ(whole.other_values, (std::vector<AttributeValue>{0.5, 2.0}));
  const AttributeSpec mixed{"beta", 2.5f, {std::int64_t{3}, 4u, true}};
  EXPECT_EQ(std::get<double>(mixed.default_value), 2.5);
  EXPECT_EQ(mixed.other_values, (std::vector<AttributeValue>{3.0, 4.0, 1.0}));
  const AttributeSpec text{"reduction", "mean", {"sum", std::string("none")}};
  EXPECT_EQ(std::get<std::string>(text.default_value), "mean");
  EXPECT_EQ(text.other_values, (std::vector<AttributeValue>{"sum", "none"}));
}

TEST(OpCall, RoundTrips) {
  const OpSignature s = norm_like();
  for (const Dtype storage : {Dtype::fp32, Dtype::fp16, Dtype::bf16})
    for (const bool absent : {false, true})
      for (const bool fp32 : {false, true})
        for (const double eps : {1e-5, 0.0, 0.1, 1.0 / 3, 5e-324, 1e300}) {
          OpCall call = default_call(s, storage);
          call.dims["N"] = 0;
          call.dims["D"] = std::int64_t{1} << 40;
          call.attributes.set("eps", eps);
          call.seed = std::numeric_limits<std::uint64_t>::max();
          if (absent) call.absent = {"weight"};
          if (fp32 && storage != Dtype::fp32) call.dtypes["bias"] = Dtype::fp32;
          const OpCall back = parse_call(call.str(s), s);
          EXPECT_EQ(back.str(s), call.str(s));
          EXPECT_EQ(back.storage, storage);
          EXPECT_EQ(back.dims, call.dims);
          EXPECT_EQ(back.dtypes, call.dtypes);
          EXPECT_EQ(back.absent, call.absent);
          EXPECT_EQ(back.attributes.number("eps"), eps);
          EXPECT_EQ(back.seed, call.seed);
        }
}

TEST(OpCall, ShapesAndTypesFollowTheSignature) {
  const OpSignature s = norm_like();
  const OpCall call = parse_call("norm_like(x=bf16[4,6],weight=fp32,bias=bf16[3],seed=1)", s);
  EXPECT_TRUE(call.shape(s.inputs[0]) == (Shape{4, 6}));
  EXPECT_TRUE(call.shape(s.inputs[1]) == (Shape{6}));
  EXPECT_EQ(call.dtype(s.inputs[1]), Dtype::fp32);
  EXPECT_EQ(call.dtype(s.inputs[2]), Dtype::bf16);
  EXPECT_EQ(call.dtype(s.inputs[3]), Dtype::u8);
  // The extent of a tensor that is left out is the standard one.
  EXPECT_EQ(parse_call("norm_like(x=fp32[4,6],bias=none,seed=1)", s).dims.at("E"), 3);
  EXPECT_EQ(op_of("norm_like(x=fp32[4,6])"), "norm_like");
  EXPECT_EQ(op_of("softmax.sign"), "softmax.sign");
}

TEST(OpCall, IndicesBeforeTheFirstStoredTensor) {
  OpSignature s;
  s.name = "lookup";
  s.inputs = {{.name = "ids", .dims = "N", .role = Role::index, .type = TypeRule::i64, .index_dim = "V"},
              {.name = "table", .dims = "V D"}};
  s.dims = {{"N", {6, 6, 6}}, {"V", {5, 5, 5}}, {"D", {4, 4, 4}}};
  const OpCall call = default_call(s, Dtype::fp16);
  EXPECT_EQ(call.str(s), "lookup(ids=i64[6],table=fp16[5,4],seed=1)");
  EXPECT_EQ(parse_call(call.str(s), s).storage, Dtype::fp16);
}

TEST(OpCall, ErrorsSayWhatWhereAndWhatWasWanted) {
  const struct {
    const char* text;
    std::vector<const char*> parts;
  } cases[] = {
      {"other(x=fp32[1,1])", {"got op 'other'", "want norm_like", "column 1 "}},
      {"norm_like", {"want op(key=value,...)", "column 10 "}},
      {"norm_like(x=fp32[5,7],bias=none,rnage=spike)", {"unknown key 'rnage'", "did you mean 'range'?", "column 33 "}},
      {"norm_like(x=fp32[5,7],bias=none,zzzzzzz=1)", {"unknown key 'zzzzzzz'"}},
      {"norm_like(x=fp31[5,7])", {"got dtype 'fp31'", "column 11 "}},
      {"norm_like(x=none)", {"'x', which is not optional"}},
      {"norm_like(x=fp32[5])", {"too few extents for 'x'", "[N D]"}},
      {"norm_like(x=fp32[5,7,2])", {"too many extents for 'x'"}},
      {"norm_like(x=fp32[5,7)", {"']'"}},
      {"norm_like(x=fp32[5,-7])", {"got '-7'", "extent from 0"}},
      {"norm_like(x=fp32[5,7x])", {"got '7x'"}},
      {"norm_like(x=fp32[5,99999999999999])", {"extent from 0 to 2^40"}},
      {"norm_like(x=fp32[5,7],weight=fp32[8],bias=none)", {"D=8", "it is 7 before", "column 23 "}},
      {"norm_like(x=fp32[5,7],bias=none,keep=fp32)", {"got fp32 for 'keep', want u8"}},
      {"norm_like(x=fp32[5,7],bias=none,eps=many)", {"got 'many' for eps, want a number"}},
      {"norm_like(x=fp32[5,7],bias=none,seed=-1)", {"got seed '-1'"}},
      {"norm_like(x=fp32[5,7],bias=none,spike)", {"want key=value"}},
      {"norm_like(x=fp32[5,7])", {"no extent for E"}},
      {"norm_like(seed=1)", {"no extent for"}},
  };
  for (const auto& c : cases) {
    const std::string message = error_of(c.text);
    EXPECT_NE(message, "") << c.text;
    for (const char* part : c.parts) EXPECT_NE(message.find(part), std::string::npos) << c.text << ": " << message;
  }
}

TEST(Matches, Wildcards) {
  EXPECT_TRUE(matches("softmax", "softmax"));
  EXPECT_TRUE(matches("*", ""));
  EXPECT_TRUE(matches("soft*", "softmax"));
  EXPECT_TRUE(matches("*max*", "log_softmax(x=bf16[5,7])"));
  EXPECT_TRUE(matches("*a*b*c", "xaxbxbxc"));
  EXPECT_TRUE(matches("?um", "sum"));
  EXPECT_TRUE(matches("a*", "a"));
  EXPECT_FALSE(matches("?um", "um"));
  EXPECT_FALSE(matches("soft", "softmax"));
  EXPECT_FALSE(matches("*a*b*c", "xaxcxb"));
  EXPECT_FALSE(matches("", "x"));
  EXPECT_TRUE(matches("a*b", "a*b"));  // an equal text always matches
  EXPECT_TRUE(matches("a?[1]", "a?[1]"));
}

TEST(NearestWord, FindsTyposOnly) {
  const std::vector<std::string> words = {"softmax", "log_softmax", "gelu", "relu", "sum"};
  EXPECT_EQ(nearest_word("sofmax", words), "softmax");
  EXPECT_EQ(nearest_word("gleu", words), "gelu");
  EXPECT_EQ(nearest_word("SUM", {"sum"}), "");
  EXPECT_EQ(nearest_word("completely_else", words), "");
  EXPECT_EQ(nearest_word("relu", words), "relu");
  EXPECT_EQ(nearest_word("x", {}), "");
}

TEST(NearestWord, IsOfferedInsideTheSentence) {
  EXPECT_EQ(did_you_mean("sofmax", {"softmax", "gelu"}), " (did you mean 'softmax'?)");
  EXPECT_EQ(did_you_mean("completely_else", {"softmax", "gelu"}), "");
}

TEST(NumberText, ReadsBackShortest) {
  EXPECT_EQ(number_text(3), "3");
  EXPECT_EQ(number_text(-100), "-100");
  EXPECT_EQ(number_text(0.1), "0.1");
  EXPECT_EQ(number_text(1e-5), "1e-05");
  EXPECT_EQ(number_text(1e300), "1e+300");
  for (const double v : {1.0 / 3, 5e-324, -2.5, 1e15, 123456789.125, std::nextafter(1.0, 2.0)})
    EXPECT_EQ(std::strtod(number_text(v).c_str(), nullptr), v);
}

}  // namespace
}  // namespace ampcheck
