// SPDX-License-Identifier: Apache-2.0
#include "src/npy.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "src/error.h"

namespace ampcheck {
namespace {

const double kInf = std::numeric_limits<double>::infinity();

/// The bytes that numpy.save writes for np.array([1.5, -0.0], dtype='<f4'), header padded to 128 bytes.
std::string numpy_file() {
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }";
  header.append(117 - header.size(), ' ');
  header += '\n';
  std::string out("\x93NUMPY\x01\x00\x76\x00", 10);
  out += header;
  return out + std::string("\x00\x00\xc0\x3f\x00\x00\x00\x80", 8);
}

TEST(Npy, ReadsWhatNumpyWrites) {
  const NpyArray array = parse_npy(numpy_file(), "file");
  EXPECT_EQ(array.dtype, Dtype::fp32);
  EXPECT_EQ(array.shape, Shape({2}));
  ASSERT_EQ(array.values.size(), 2u);
  EXPECT_EQ(array.values[0], 1.5);
  EXPECT_TRUE(std::signbit(array.values[1]));
}

TEST(Npy, WritesWhatNumpyWrites) {
  const std::string bytes = npy_bytes({Dtype::fp32, Shape({2}), {1.5, -0.0}});
  EXPECT_EQ(bytes.substr(0, 8), numpy_file().substr(0, 8));
  EXPECT_EQ((bytes.size() - 8) % 64, 0u);  // data is aligned
  EXPECT_EQ(bytes.substr(bytes.size() - 8), numpy_file().substr(numpy_file().size() - 8));
  EXPECT_NE(bytes.find("'shape': (2,)"), std::string::npos);
}

TEST(Npy, RoundTripsEveryRankAndSpecialValues) {
  const std::vector<double> values = {0.0, -0.0, kInf, -kInf, 5e-324, 0x1.fffffffffffffp1023};
  for (const Shape& shape : {Shape({6}), Shape({2, 3}), Shape({1, 2, 3, 1})}) {
    const NpyArray back = parse_npy(npy_bytes({Dtype::fp64, shape, values}), "file");
    EXPECT_EQ(back.shape, shape);
    for (std::size_t i = 0; i < values.size(); ++i)
      EXPECT_EQ(std::bit_cast<std::uint64_t>(back.values[i]), std::bit_cast<std::uint64_t>(values[i]));
  }
  const NpyArray scalar = parse_npy(npy_bytes({Dtype::i64, Shape(), {-7}}), "file");
  EXPECT_EQ(scalar.shape.rank, 0);
  EXPECT_EQ(scalar.values, std::vector<double>{-7});
  EXPECT_TRUE(parse_npy(npy_bytes({Dtype::fp64, Shape({0, 4}), {}}), "file").values.empty());
  EXPECT_TRUE(std::isnan(parse_npy(npy_bytes({Dtype::bf16, Shape({1}), {std::nan("")}}), "file").values[0]));
}

TEST(Npy, NarrowFloatsAreFp32AndIntegersI64) {
  EXPECT_EQ(parse_npy(npy_bytes({Dtype::bf16, Shape({1}), {3}}), "file").dtype, Dtype::fp32);
  EXPECT_EQ(parse_npy(npy_bytes({Dtype::u8, Shape({1}), {3}}), "file").dtype, Dtype::i64);
}

TEST(Npy, RefusesToWriteWhatIsNotExact) {
  EXPECT_THROW(npy_bytes({Dtype::fp32, Shape({1}), {0.1}}), Error);
  EXPECT_THROW(npy_bytes({Dtype::i64, Shape({1}), {0.5}}), Error);
  EXPECT_THROW(npy_bytes({Dtype::i64, Shape({1}), {kInf}}), Error);
  EXPECT_THROW(npy_bytes({Dtype::fp64, Shape({2}), {1}}), Error);
}

TEST(Npy, RefusesDamagedFiles) {
  const std::string good = numpy_file();
  for (std::size_t size = 0; size < good.size(); ++size)
    EXPECT_THROW(parse_npy(good.substr(0, size), "file"), Error) << size;
  EXPECT_THROW(parse_npy(good + "x", "file"), Error);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string bytes = good;
    return bytes.replace(bytes.find(from), from.size(), to);
  };
  EXPECT_THROW(parse_npy(with("<f4", ">f4"), "file"), Error);
  EXPECT_THROW(parse_npy(with("<f4", "|O8"), "file"), Error);
  EXPECT_THROW(parse_npy(with("False", "Maybe"), "file"), Error);
  EXPECT_THROW(parse_npy(with("(2,)", "(3,)"), "file"), Error);
  EXPECT_THROW(parse_npy(with("(2,)", "(-2)"), "file"), Error);
  EXPECT_THROW(parse_npy(with("'shape'", "'other'"), "file"), Error);
  EXPECT_THROW(parse_npy(with("(2,), }                      ", "(99999999,99999999,9999999),}"), "file"), Error);
  EXPECT_THROW(parse_npy(with(std::string("\x01\x00", 2), std::string("\x02\x00", 2)), "file"),
               Error);  // its length has 4 bytes
  EXPECT_THROW(parse_npy(with(std::string("\x01\x00", 2), std::string("\x01\x01", 2)), "file"), Error);
  EXPECT_THROW(read_npy("/nonexistent.npy"), Error);
}

}  // namespace
}  // namespace ampcheck
