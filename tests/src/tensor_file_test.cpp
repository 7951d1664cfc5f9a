// SPDX-License-Identifier: Apache-2.0
// Readers and writers of tensors by name: files of numpy and safetensors themselves, round trips, and damaged files.
#include "src/tensor_file.h"

#include <gtest/gtest.h>
#include <zip.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

#include "src/error.h"
#include "src/file_bytes.h"
#include "src/npy.h"
#include "src/npz.h"
#include "tests/support/paths.h"
#include "tests/support/run_program.h"

namespace ampcheck {
namespace {

const std::string kData = tests::in_data_root("/tests/data/tensors/");

std::string message(const auto& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

Tensor tensor(Dtype dtype, const Shape& shape, const std::vector<double>& values) {
  Tensor out(dtype, shape);
  from_doubles(values, out.view());
  return out;
}

/// What make_tensors.py wrote.
void expect_common(const TensorFile& file) {
  const auto values = [&](const char* name) { return to_doubles(file.find(name)->view()); };
  for (const auto& [name, dtype, shape] : {std::tuple{"f64", Dtype::fp64, Shape{3}},
                                           {"f32", Dtype::fp32, Shape{2, 3}},
                                           {"f16", Dtype::fp16, Shape{1, 2}},
                                           {"i64", Dtype::i64, Shape{2}},
                                           {"i32", Dtype::i32, Shape{2}},
                                           {"u8", Dtype::u8, Shape{2}},
                                           {"mask", Dtype::u8, Shape{2, 2}},
                                           {"scalar", Dtype::fp32, Shape{}},
                                           {"empty", Dtype::fp32, Shape{0, 4}}}) {
    ASSERT_NE(file.find(name), nullptr) << name;
    EXPECT_EQ(file.find(name)->dtype(), dtype) << name;
    EXPECT_EQ(file.find(name)->shape(), shape) << name;
  }
  EXPECT_EQ(values("f64"), (std::vector<double>{0.1, -0.0, 5e-324}));
  EXPECT_TRUE(std::signbit(values("f64")[1]));
  EXPECT_EQ(values("f32"), (std::vector<double>{0, 0.25, 0.5, 0.75, 1, 1.25}));
  EXPECT_EQ(values("f16"), (std::vector<double>{65504, 0x1p-24}));
  EXPECT_EQ(file.find("i64")->span<std::int64_t>()[0], -(std::int64_t{1} << 62));
  EXPECT_EQ(values("i32"), (std::vector<double>{-3, 4}));
  EXPECT_EQ(values("u8"), (std::vector<double>{0, 255}));
  EXPECT_EQ(values("mask"), (std::vector<double>{1, 0, 0, 1}));
  EXPECT_EQ(values("scalar"), std::vector<double>{2.5});
}

TEST(TensorFile, ReadsWhatSafetensorsWrites) {
  const TensorFile file = read_tensors(kData + "numpy.safetensors");
  expect_common(file);
  EXPECT_EQ(file.tensors.size(), 12u);
  const Tensor& bf16 = *file.find("bf16");
  EXPECT_EQ(bf16.dtype(), Dtype::bf16);
  EXPECT_EQ(bits_at(bf16.view(), 2), 0x4049u);
  const std::vector<double> values = to_doubles(bf16.view());
  EXPECT_EQ(values[1], -0.5);
  EXPECT_EQ(values[3], std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(values[4]));
  EXPECT_EQ(values[5], 0x1p-133);
  EXPECT_EQ(to_doubles(file.find("e4m3")->view()), (std::vector<double>{448, -0.0625}));
  EXPECT_EQ(to_doubles(file.find("e5m2")->view()), (std::vector<double>{57344, -0.25}));
}

TEST(TensorFile, ReadsWhatNumpyWrites) {
  for (const char* name : {"stored.npz", "deflated.npz"}) {
    const TensorFile file = read_tensors(kData + name);
    expect_common(file);
    EXPECT_EQ(file.tensors.size(), 10u);
    const std::vector<double> fortran = to_doubles(file.find("fortran")->view());
    for (std::size_t i = 0; i < 24; ++i) EXPECT_EQ(fortran[i], static_cast<double>(i));
  }
  EXPECT_EQ(read_tensors(kData + "fortran.npy").find("fortran")->shape(), Shape({2, 3, 4}));
  EXPECT_EQ(to_doubles(read_tensors(kData + "version3.npy").find("version3")->view()),
            (std::vector<double>{65504, 0x1p-24}));
}

TEST(TensorFile, RefusesWhatItDoesNotHaveAndSaysSo) {
  EXPECT_NE(message([] { read_tensors(kData + "object.npy"); }).find("'|O'"), std::string::npos);
  EXPECT_NE(message([] { read_tensors(kData + "big_endian.npy"); }).find("little-endian"), std::string::npos);
  EXPECT_NE(message([] { read_tensors(kData + "bfloat16.npy"); }).find("no bf16"), std::string::npos);
  EXPECT_THROW(read_tensors("/nonexistent.npz"), EnvironmentError);
  EXPECT_THROW(read_tensors("/dev/null"), Error);
  EXPECT_THROW(read_tensors(kData), Error);  // the refused ones among them
}

std::vector<NamedTensor> some_tensors() {
  return {{"x", tensor(Dtype::fp64, {2, 1}, {0.1, -0.0})},
          {"with blank \"and\" quote", tensor(Dtype::fp32, {3}, {1, 2, 3})},
          {"h", tensor(Dtype::fp16, {}, {0.5})},
          {"none", tensor(Dtype::fp32, {4, 0, 2}, {})},
          {"n", tensor(Dtype::i64, {1}, {-9})},
          {"m", tensor(Dtype::u8, {1, 1, 1, 1, 1, 1, 1, 2}, {1, 0})},
          {"k", tensor(Dtype::i32, {2}, {-1, 1})}};
}

void expect_same(const std::vector<NamedTensor>& got, const std::vector<NamedTensor>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (const NamedTensor& w : want) {
    const auto g = std::find_if(got.begin(), got.end(), [&](const NamedTensor& t) { return t.name == w.name; });
    ASSERT_NE(g, got.end()) << w.name;
    EXPECT_EQ(g->tensor.dtype(), w.tensor.dtype()) << w.name;
    EXPECT_EQ(g->tensor.shape(), w.tensor.shape()) << w.name;
    for (std::int64_t i = 0; i < w.tensor.count(); ++i)
      EXPECT_EQ(bits_at(g->tensor.view(), i), bits_at(w.tensor.view(), i)) << w.name;
  }
}

TEST(TensorFile, RoundTrips) {
  std::vector<NamedTensor> all = some_tensors();
  expect_same(parse_npz(npz_bytes(all), "file"), all);
  all.push_back({"b", tensor(Dtype::bf16, {2}, {3.140625, std::nan("")})});
  all.push_back({"e", tensor(Dtype::e4m3fn, {1}, {-448})});
  all.push_back({"f", tensor(Dtype::e5m2, {1}, {57344})});
  expect_same(parse_safetensors(safetensors_bytes(all), "file"), all);
  const std::vector<NamedTensor> widened = parse_npz(npz_bytes(all), "file");  // NumPy has no bf16
  EXPECT_EQ(widened[7].tensor.dtype(), Dtype::fp32);
  EXPECT_EQ(to_doubles(widened[7].tensor.view())[0], 3.140625);
  expect_same(parse_npz(npz_bytes({}), "file"), {});
  expect_same(parse_safetensors(safetensors_bytes({}), "file"), {});
  EXPECT_EQ(npz_bytes(all), npz_bytes(all));
  EXPECT_THROW(safetensors_bytes(std::vector<NamedTensor>{all[0], all[0]}), Error);
  EXPECT_THROW(npz_bytes(std::vector<NamedTensor>{{"../x", all[0].tensor}}), Error);
  EXPECT_THROW(npz_bytes(std::vector<NamedTensor>{{"", all[0].tensor}}), Error);
}

TEST(TensorFile, AFolderIsItsFiles) {
  const testing::TemporaryFolder folder;
  const auto write = [&](const std::string& name, const std::string& bytes) {
    std::ofstream(folder.path() + "/" + name, std::ios::binary) << bytes;
  };
  write("x.npy", npy_bytes(tensor(Dtype::fp16, {1}, {2})));
  write("rest.safetensors", safetensors_bytes(std::vector<NamedTensor>{{"dx", tensor(Dtype::bf16, {1}, {3})}}));
  write("notes.txt", "no tensor");
  const TensorFile file = read_tensors(folder.path());
  EXPECT_EQ(file.tensors.size(), 2u);
  EXPECT_EQ(file.find("x")->dtype(), Dtype::fp16);
  EXPECT_EQ(file.find("dx")->dtype(), Dtype::bf16);
  write("more.npz", npz_bytes(std::vector<NamedTensor>{{"dx", tensor(Dtype::fp32, {1}, {3})}}));
  EXPECT_NE(message([&] { read_tensors(folder.path()); }).find("'dx' in two files"), std::string::npos);
}

TEST(TensorFile, TheDigestIsOfTheContents) {
  TensorFile a{"a", some_tensors()}, b{"b", some_tensors()};
  std::swap(b.tensors[0], b.tensors[1]);
  EXPECT_EQ(a.digest(), b.digest());
  b.tensors[2].tensor.span<std::uint16_t>()[0] ^= 1;
  EXPECT_NE(a.digest(), b.digest());
}

/// A safetensors file of a header and so many zero bytes.
std::string safetensors(const std::string& header, std::size_t data) {
  std::string out;
  put(out, static_cast<std::uint64_t>(header.size()));
  return out + header + std::string(data, '\0');
}

void refused(const std::string& header, std::size_t data, const std::string& why) {
  const std::string words = message([&] { parse_safetensors(safetensors(header, data), "file"); });
  EXPECT_NE(words.find(why), std::string::npos) << header << "\n" << words;
  EXPECT_TRUE(words.starts_with("[safetensors] 'file': ")) << words;
}

/// The header of one tensor.
std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return "{\"x\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}}";
}

TEST(Safetensors, RefusesATensorThatDoesNotFitItsData) {
  EXPECT_EQ(parse_safetensors(safetensors(one("F32", "[2]", "[0,8]"), 8), "file").size(), 1u);
  refused(one("F32", "[2]", "[0,8]"), 9, "got 9 bytes of data, want 8");
  refused(one("F32", "[2]", "[0,8]"), 7, "want 8");
  refused(one("F32", "[2]", "[0,4]"), 4, "want 8 for F32[2]");
  refused(one("F32", "[1]", "[4,8]"), 8, "begin at 0");
  refused(one("F32", "[1]", "[8,4]"), 8, "begin at 0");
  refused(one("F32", "[0]", "[0,0,0]"), 0, "more than two data_offsets");
  refused(one("F32", "[1]", "[0]"), 4, "two data_offsets");
  refused(one("I16", "[1]", "[0,2]"), 2, "got dtype 'I16'");
  refused(one("F32", "[-1]", "[0,4]"), 4, "negative");
  refused(one("F32", "[1.5]", "[0,4]"), 4, "not whole");
  refused(one("F32", "[4294967296,4294967296]", "[0,4]"), 4, "2^53");
  refused(one("F32", "[18446744073709551615]", "[0,4]"), 4, "2^53");
  refused(one("F32", "[0,4294967296,4294967296,4294967296]", "[0,0]"), 0, "2^53");
  refused(one("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, "more than 8 dimensions");
  refused(one("F32", "[[1]]", "[0,4]"), 4, "array out of place");
  refused(one("F32", "{}", "[0,4]"), 4, "object inside");
  EXPECT_NE(
      message([&] { parse_safetensors(safetensors(one("BOOL", "[1]", "[0,1]"), 0) + "\x02", "file"); }).find("boolean"),
      std::string::npos);
}

TEST(Safetensors, RefusesHeadersThatLie) {
  refused("{\"x\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "'dtype' twice");
  refused(
      "{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_"
      "offsets\":[0,4]}}",
      4, "'x' twice");
  refused(
      "{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"y\":{\"dtype\":\"F32\",\"shape\":[1],\"data_"
      "offsets\":[0,4]}}",
      4, "begin at 4");
  refused("{\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"more\":1}}", 4, "'more'");
  refused("{\"x\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "want dtype, shape");
  refused("{\"x\":7}", 0, "number out of place");
  refused("{\"x\":\"F32\"}", 0, "out of place");
  refused("{\"x\":[1]}", 0, "array out of place");
  refused("{\"x\":null}", 0, "null");
  refused("{\"\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "name of 0 bytes");
  refused("{\"a\\u0007\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "control character");
  refused("{\"" + std::string(1025, 'n') + "\":{}}", 0, "name of 1025 bytes");
  refused("{\"__metadata__\":{\"a\":1}}", 0, "number out of place");
  refused("{\"__metadata__\":{\"a\":\"b\",\"a\":\"c\"}}", 0, "'a' twice");
  refused("{\"x\":{", 0, "no JSON");
  refused("{} x", 0, "no JSON");
  refused("{\"\xff\":{}}", 0, "no JSON");
  refused("[]", 0, "want '{'");
  refused("", 0, "want '{'");
}

TEST(Safetensors, RefusesAWrongLengthOfTheHeader) {
  std::string bytes = safetensors("{}", 0);
  bytes[7] = 1;
  EXPECT_NE(message([&] { parse_safetensors(bytes, "file"); }).find("want at most 16777216"), std::string::npos);
  bytes = safetensors("{}", 0);
  bytes[0] = 3;
  EXPECT_NE(message([&] { parse_safetensors(bytes, "file"); }).find("in a file of 10"), std::string::npos);
  EXPECT_NE(message([&] { parse_safetensors("short", "file"); }).find("got 5 bytes"), std::string::npos);
}

TEST(Safetensors, RefusesEveryCutFile) {
  const std::string good = safetensors_bytes(some_tensors());
  for (std::size_t size = 0; size < good.size(); ++size)
    EXPECT_THROW(parse_safetensors(good.substr(0, size), "file"), Error) << size;
  EXPECT_THROW(parse_safetensors(good + "x", "file"), Error);
}

/// An archive of entries as they are, with a compression method.
std::string zip_of(const std::vector<std::pair<std::string, std::string>>& entries, int method) {
  zip_error_t error;
  zip_error_init(&error);
  zip_source_t* const target = zip_source_buffer_create(nullptr, 0, 0, &error);
  zip_source_keep(target);
  zip_t* const archive = zip_open_from_source(target, ZIP_TRUNCATE, &error);
  for (const auto& [name, bytes] : entries) {
    const zip_int64_t at = zip_file_add(archive, name.c_str(),
                                        zip_source_buffer(archive, bytes.data(), bytes.size(), 0), ZIP_FL_ENC_UTF_8);
    zip_set_file_compression(archive, static_cast<zip_uint64_t>(at), method, 0);
  }
  EXPECT_EQ(zip_close(archive), 0);
  zip_stat_t facts;
  zip_source_stat(target, &facts);
  std::string out(facts.size, '\0');
  zip_source_open(target);
  zip_source_read(target, out.data(), out.size());
  zip_source_close(target);
  zip_source_free(target);
  return out;
}

TEST(Npz, RefusesWhatIsNoArchiveOfArrays) {
  const std::string good = npy_bytes(tensor(Dtype::fp32, {2}, {1, 2}));
  const auto refused = [](const std::string& bytes, const std::string& why) {
    const std::string words = message([&] { parse_npz(bytes, "file"); });
    EXPECT_NE(words.find(why), std::string::npos) << words;
    EXPECT_NE(words.find("'file"), std::string::npos) << words;
  };
  EXPECT_EQ(parse_npz(zip_of({{"x.npy", good}}, ZIP_CM_DEFLATE), "file").front().name, "x");
  refused(zip_of({{"x.txt", good}}, ZIP_CM_STORE), "want NAME.npy");
  refused(zip_of({{"a/x.npy", good}}, ZIP_CM_STORE), "without '/'");
  refused(zip_of({{"...npy", good}}, ZIP_CM_STORE), "'..'");
  refused(zip_of({{".npy", good}}, ZIP_CM_STORE), "name of 0 bytes");
  refused(zip_of({{"x.npy", good + "x"}}, ZIP_CM_DEFLATE), "want 136 for shape [2]");
  refused(zip_of({{"x.npy", good.substr(0, 130)}}, ZIP_CM_STORE), "got 130 bytes");
  refused(zip_of({{"x.npy", "no array"}}, ZIP_CM_STORE), "no .npy");
  refused("PK\x03\x04 and nothing behind it", "no sound .npz");
  std::string twice = zip_of({{"x.npy", good}, {"y.npy", good}}, ZIP_CM_STORE);
  for (std::size_t at; (at = twice.find("y.npy")) != std::string::npos;) twice[at] = 'x';
  refused(twice, "already exists");
  refused("", "0 bytes");
}

/// One byte changed anywhere is refused, unless it changes nothing of the arrays (times, comments, system of origin).
TEST(Npz, NoChangedByteChangesAnArray) {
  for (const int method : {ZIP_CM_STORE, ZIP_CM_DEFLATE}) {
    const Tensor want = tensor(Dtype::fp32, {40}, std::vector<double>(40, 1.5));
    const std::string good = zip_of({{"x.npy", npy_bytes(want)}}, method);
    std::size_t caught = 0;
    for (std::size_t at = 0; at < good.size(); ++at) {
      std::string bytes = good;
      bytes[at] = static_cast<char>(bytes[at] ^ 0x11);
      try {
        const std::vector<NamedTensor> got = parse_npz(bytes, "file");
        for (const NamedTensor& t : got) EXPECT_EQ(std::memcmp(t.tensor.data(), want.data(), 160), 0) << at;
      } catch (const Error&) {
        ++caught;
      }
    }
    EXPECT_GT(caught, good.size() / 2);
    for (std::size_t size = 0; size < good.size(); ++size)
      EXPECT_THROW(parse_npz(good.substr(0, size), "file"), Error) << size;
  }
}

/// A few kilobytes may not ask for gigabytes.
TEST(Npz, RefusesABomb) {
  std::string bomb = zip_of({{"x.npy", npy_bytes(Tensor(Dtype::u8, {4096}))}}, ZIP_CM_DEFLATE);
  std::string size, large;
  put(size, std::uint32_t{4096 + 128});
  put(large, std::uint32_t{1} << 31);
  for (std::size_t at; (at = bomb.find(size)) != std::string::npos;) bomb.replace(at, 4, large);  // in both headers
  EXPECT_NE(message([&] { parse_npz(bomb, "file"); }).find("more than 1073741824 bytes unpacked in a file of"),
            std::string::npos);
  // A header alone that declares much: nothing of that size is allocated, the entry ends first.
  std::string array = npy_bytes(Tensor(Dtype::fp32, {1}));
  array.replace(array.find("(1,)"), 20, "(100000000000,), }  ");
  EXPECT_NE(message([&] {
              parse_npz(zip_of({{"x.npy", array}}, ZIP_CM_STORE), "file");
            }).find("want 400000000128"),
            std::string::npos);
}

TEST(Npy, ReadsEveryVersionOrderAndType) {
  const auto npy = [](int version, const std::string& header, const std::string& data) {
    std::string out("\x93NUMPY", 6);
    out += static_cast<char>(version);
    out += '\0';
    if (version == 1)
      put(out, static_cast<std::uint16_t>(header.size()));
    else
      put(out, static_cast<std::uint32_t>(header.size()));
    return out + header + data;
  };
  const std::string data = "\x01\x02\x03\x04\x05\x06";
  for (const int version : {1, 2, 3}) {
    const Tensor f =
        parse_npy_tensor(npy(version, "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3)}", data), "file");
    EXPECT_EQ(to_doubles(f.view()), (std::vector<double>{1, 3, 5, 2, 4, 6}));
  }
  EXPECT_THROW(parse_npy_tensor(npy(4, "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3)}", data), "file"),
               Error);
  EXPECT_THROW(parse_npy_tensor(npy(1, "{'descr': '|b1', 'fortran_order': True, 'shape': (2, 3)}", data), "file"),
               Error);
  EXPECT_THROW(parse_npy_tensor(
                   npy(1, "{'descr': '|u1', 'descr': '|u1', 'fortran_order': True, 'shape': (2, 3)}", data), "file"),
               Error);
  EXPECT_NE(message([&] { parse_npy_tensor(npy(2, std::string(10'001, ' '), ""), "file"); }).find("at most 10000"),
            std::string::npos);
  EXPECT_NE(message([&] {
              parse_npy(npy(1, "{'descr': '<i8', 'fortran_order': False, 'shape': ()}", std::string(7, '\0') + "\x40"),
                        "file");
            }).find("2^53"),
            std::string::npos);
}

}  // namespace
}  // namespace ampcheck
