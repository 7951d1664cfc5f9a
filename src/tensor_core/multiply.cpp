// SPDX-License-Identifier: Apache-2.0
// Packing for tile.h, and the blocks that it leaves to the reference.
#include "src/tensor_core/multiply.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "src/error.h"
#include "src/parallel.h"
#include "src/rounding.h"
#include "src/tensor_core/tile.h"
#include "src/tensor_core/vectors.h"

namespace ampcheck::tensor_core {

namespace {

std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }

/// What the fast way knows of a product. k is cut into blocks of the rule, each of them full: what lacks is zero.
struct Plan {
  Product product;
  Rule rule;
  Input a, b;  ///< types of the packed codes: fp16 where 8 bits become that
  Settings settings;
  std::int64_t blocks_of_instruction = 1;
  std::vector<std::int64_t> order;  ///< where in an instruction each packed k is

  explicit Plan(const Product& p) : product(p), rule(rule_of(p.instruction)), a(p.instruction.a), b(p.instruction.b) {
    const Instruction& i = p.instruction;
    if (rule.by_two_fp16) a = b = Input::fp16;
    for (const int half : {0, 2})  // of 8 bits by two blocks of fp16
      for (int k = 0; k < i.k; ++k)
        if (!rule.by_two_fp16 ? half == 0 : (k & 2) == half) order.push_back(k);
    const int products = rule.by_two_fp16 ? i.k / 2 : std::min(rule.products, i.k);
    blocks_of_instruction = i.k / products;
    settings = {.result = rule.result,
                .fraction = rule.fraction,
                .least_exponent = rule.least_exponent,
                .zero_exponent = rule.zeros_count ? -126 : kNoExponent,
                .c_least_exponent = format_of(i.output).min_exponent(),
                .products = products};
  }
};

/// Rows of a, or columns of b, in panels of `width`: values with exponents for the fast way, and codes for the
/// reference.
class Panels {
 public:
  Panels(const Plan& plan, Input from, Input type, const Codes& m, int width)
      : width_(width),
        products_(plan.settings.products),
        blocks_((m.columns + plan.product.instruction.k - 1) / plan.product.instruction.k *
                plan.blocks_of_instruction) {
    const std::int64_t panels = (m.rows + width - 1) / width, depth = blocks_ * products_;
    values_.resize(size(panels * depth * width));
    exponents_.resize(values_.size(), static_cast<std::int16_t>(plan.settings.zero_exponent));
    codes_.resize(values_.size());
    odd_.resize(size(panels * blocks_));
    parallel_for(panels, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t panel = begin; panel < end; ++panel) pack(plan, from, type, m, panel);
    });
  }

  PanelView view(std::int64_t panel) const {
    const std::size_t at = size(panel * blocks_ * products_ * width_);
    return {values_.data() + at, exponents_.data() + at, odd_.data() + size(panel * blocks_)};
  }
  std::int64_t blocks() const { return blocks_; }
  /// One row's codes of a block.
  std::vector<std::uint32_t> codes(std::int64_t panel, std::int64_t block, int row) const {
    std::vector<std::uint32_t> out(size(products_));
    for (int k = 0; k < products_; ++k)
      out[size(k)] = codes_[size(((panel * blocks_ + block) * products_ + k) * width_ + row)];
    return out;
  }

 private:
  void pack(const Plan& plan, Input from, Input type, const Codes& m, std::int64_t panel) {
    const std::int64_t rows = std::min<std::int64_t>(width_, m.rows - panel * width_), depth = blocks_ * products_;
    const std::int64_t step = plan.product.instruction.k;
    std::vector<std::vector<std::uint32_t>> lines(size(rows), std::vector<std::uint32_t>(size(depth)));
    std::vector<std::vector<float>> decoded(size(rows), std::vector<float>(size(depth)));
    for (std::int64_t row = 0; row < rows; ++row) {
      std::vector<std::uint32_t>& line = lines[size(row)];
      for (std::int64_t first = 0; first < depth; first += step)
        for (std::int64_t k = 0; k < step; ++k) {
          const std::int64_t source = first + plan.order[size(k)];
          line[size(first + k)] = source < m.columns ? m.at(panel * width_ + row, source) : 0;
        }
      to_values(from, type, line, decoded[size(row)]);
    }
    // A block of all rows after the other: what is written then lies close together.
    for (std::int64_t block = 0; block < blocks_; ++block)
      for (std::int64_t row = 0; row < rows; ++row)
        put(format_of(type).min_exponent(), panel, block, row, lines[size(row)].data() + block * products_,
            decoded[size(row)].data() + block * products_);
  }

  /// Codes of `from` become such of `type`, and values.
  static void to_values(Input from, Input type, std::vector<std::uint32_t>& codes, std::vector<float>& values) {
    const FloatFormat& format = format_of(from);
    const std::size_t bytes = size(format.storage_bytes());
    std::vector<std::uint8_t> packed(codes.size() * bytes);
    for (std::size_t i = 0; i < codes.size(); ++i) {
      if (from == Input::tf32) codes[i] &= 0xffffe000u;
      std::memcpy(packed.data() + i * bytes, &codes[i], bytes);
    }
    decode(format, packed.data(), std::span<float>(values));
    if (from == type) return;
    std::vector<std::uint16_t> again(codes.size());  // exact: fp16 holds every number of 8 bits
    encode(format_of(type), {}, std::span<const float>(values), again.data());
    std::copy(again.begin(), again.end(), codes.begin());
  }

  /// One row of a panel's block.
  void put(int least_exponent, std::int64_t panel, std::int64_t block, std::int64_t row, const std::uint32_t* codes,
           const float* values) {
    std::size_t at = size((panel * blocks_ + block) * products_ * width_ + row);
    bool odd = false;
    for (int k = 0; k < products_; ++k, at += size(width_)) {
      codes_[at] = codes[k];
      const auto exponent = static_cast<int>(std::bit_cast<std::uint32_t>(values[k]) >> 23 & 0xff) - 127;
      if (values[k] == 0) continue;
      odd |= exponent < kLeastOperand || exponent > kLargestOperand;
      values_[at] = values[k];  // of an odd block nobody looks at them
      exponents_[at] = static_cast<std::int16_t>(std::max(exponent, least_exponent));
    }
    if (odd) odd_[size(panel * blocks_ + block)] = 1;
  }

  int width_, products_;
  std::int64_t blocks_;
  std::vector<float> values_;
  std::vector<std::int16_t> exponents_;
  std::vector<std::uint32_t> codes_;
  std::vector<std::uint8_t> odd_;
};

/// A finite number to nearest even in fp16.
float nearest_fp16(double v) {
  const auto bits = std::bit_cast<std::uint64_t>(v), size = bits & 0x7fffffffffffffffu;
  const double absolute = std::bit_cast<double>(size);
  constexpr std::uint64_t kDropped = (std::uint64_t{1} << 42) - 1;  // 11 of 53 bits stay
  constexpr double kShift = 0x1.8p28;  // the last bit of a double there is 2^-24, that of subnormal fp16
  const double rounded = absolute < 0x1p-14
                             ? (absolute + kShift) - kShift
                             : std::bit_cast<double>((size + ((size >> 42) & 1) + (kDropped >> 1)) & ~kDropped);
  const float out = rounded > 65504 ? std::bit_cast<float>(0x7f800000u) : static_cast<float>(rounded);
  return bits == size ? out : -out;
}

float sum_outside(Output output, float x, float y) {
  const float sum = x + y;
  if (output == Output::fp32 && sum == sum) return sum;
  if (output == Output::fp16 && sum - sum == 0) return nearest_fp16(static_cast<double>(x) + static_cast<double>(y));
  const auto bits = [&](float v) { return from_fp32(output, std::bit_cast<std::uint32_t>(v)); };
  return std::bit_cast<float>(to_fp32(output, add_outside(output, bits(x), bits(y))));
}

class Multiplication {
 public:
  Multiplication(const Plan& plan, const Codes& a, const Codes& b, TileFunction tile, int columns)
      : plan_(plan),
        tile_(tile),
        columns_(columns),
        a_(plan, plan.product.instruction.a, plan.a, a, kTileRows),
        b_(plan, plan.product.instruction.b, plan.b, transposed(b), columns),
        segments_(segments(plan.product, a.columns)) {}

  /// The tile of row panel i and column panel j: c, kTileRows x columns_, in and out.
  void run(std::int64_t i, std::int64_t j, float* c) const {
    const std::size_t n = size(kTileRows * columns_);
    std::vector<float> total(c, c + n), run_sum = total, part(n);
    int run = 0;
    for (const Segment& segment : segments_) {
      if (segment.run != run) {
        add(run, run_sum, total);
        run = segment.run;
        std::fill(run_sum.begin(), run_sum.end(), 0.0f);
      }
      if (!segment.fresh) {
        chain(i, j, segment, run_sum.data());
        continue;
      }
      std::fill(part.begin(), part.end(), 0.0f);
      chain(i, j, segment, part.data());
      add(1, part, run_sum);
    }
    add(run, run_sum, total);
    std::copy(total.begin(), total.end(), c);
  }

 private:
  static Codes transposed(Codes m) {
    std::swap(m.rows, m.columns);
    std::swap(m.row_stride, m.column_stride);
    return m;
  }

  /// to += from; of the first run it is the sum itself.
  void add(int run, const std::vector<float>& from, std::vector<float>& to) const {
    for (std::size_t at = 0; at < to.size(); ++at)
      to[at] = run == 0 ? from[at] : sum_outside(plan_.product.instruction.output, to[at], from[at]);
  }

  void chain(std::int64_t i, std::int64_t j, const Segment& segment, float* c) const {
    const std::int64_t per = plan_.blocks_of_instruction;
    if (!plan_.rule.by_two_fp16) return blocks(i, j, segment.begin * per, segment.end * per, c);
    std::vector<float> sum(size(kTileRows * columns_));
    for (std::int64_t at = segment.begin; at < segment.end; ++at) {
      std::fill(sum.begin(), sum.end(), 0.0f);
      blocks(i, j, at * per, (at + 1) * per, sum.data());
      for (std::size_t n = 0; n < sum.size(); ++n) c[n] = sum_outside(plan_.product.instruction.output, sum[n], c[n]);
    }
  }

  void blocks(std::int64_t i, std::int64_t j, std::int64_t begin, std::int64_t end, float* c) const {
    const PanelView a = a_.view(i), b = b_.view(j);
    while ((begin = tile_(plan_.settings, a, b, begin, end, c, columns_)) < end) by_reference(i, j, begin++, c);
  }

  void by_reference(std::int64_t i, std::int64_t j, std::int64_t at, float* c) const {
    const Output output = plan_.product.instruction.output;
    for (int row = 0; row < kTileRows; ++row) {
      const std::vector<std::uint32_t> x = a_.codes(i, at, row);
      for (int column = 0; column < columns_; ++column) {
        float& to = c[row * columns_ + column];
        const std::uint32_t sum = from_fp32(output, std::bit_cast<std::uint32_t>(to));
        to = std::bit_cast<float>(
            to_fp32(output, block(plan_.rule, plan_.a, plan_.b, output, x, b_.codes(j, at, column), sum)));
      }
    }
  }

  const Plan& plan_;
  TileFunction tile_;
  int columns_;
  Panels a_, b_;
  std::vector<Segment> segments_;
};

void multiply_fast(const Plan& plan, const Codes& a, const Codes& b, const float* c, float* d, TileFunction tile,
                   int columns) {
  const Multiplication product(plan, a, b, tile, columns);
  const std::int64_t down = (a.rows + kTileRows - 1) / kTileRows, across = (b.columns + columns - 1) / columns;
  constexpr std::int64_t kRowsAtOnce = 16;  // so that a panel of b is used while the cache has it
  const std::int64_t bands = (down + kRowsAtOnce - 1) / kRowsAtOnce;
  parallel_for(bands * across, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> tile_c(size(kTileRows * columns));
    for (std::int64_t piece = begin; piece < end; ++piece) {
      const std::int64_t j = piece % across, first = piece / across * kRowsAtOnce;
      const std::int64_t width = std::min<std::int64_t>(columns, b.columns - j * columns);
      for (std::int64_t i = first; i < std::min(down, first + kRowsAtOnce); ++i) {
        const std::int64_t height = std::min<std::int64_t>(kTileRows, a.rows - i * kTileRows);
        const std::int64_t at = i * kTileRows * b.columns + j * columns;
        std::fill(tile_c.begin(), tile_c.end(), 0.0f);
        for (std::int64_t row = 0; c != nullptr && row < height; ++row)
          std::copy_n(c + at + row * b.columns, width, tile_c.data() + row * columns);
        product.run(i, j, tile_c.data());
        for (std::int64_t row = 0; row < height; ++row)
          std::copy_n(tile_c.data() + row * columns, width, d + at + row * b.columns);
      }
    }
  });
}

void multiply_reference(const Product& product, const Codes& a, const Codes& b, const float* c, float* d) {
  const Output output = product.instruction.output;
  parallel_for(a.rows, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::uint32_t> x(size(a.columns)), y(x.size());
    for (std::int64_t i = begin; i < end; ++i) {
      for (std::int64_t k = 0; k < a.columns; ++k) x[size(k)] = a.at(i, k);
      for (std::int64_t j = 0; j < b.columns; ++j) {
        for (std::int64_t k = 0; k < b.rows; ++k) y[size(k)] = b.at(k, j);
        const std::size_t at = size(i * b.columns + j);
        const std::uint32_t from = c == nullptr ? 0 : from_fp32(output, std::bit_cast<std::uint32_t>(c[at]));
        d[at] = std::bit_cast<float>(to_fp32(output, element(product, x, y, from)));
      }
    }
  });
}

bool has_avx512() {
#if defined(__x86_64__)
  static const bool yes = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
  return yes;
#else
  return false;
#endif
}

}  // namespace

std::vector<Path> paths() {
  std::vector<Path> out;
  if (has_avx512()) out.push_back(Path::lanes16);
  out.insert(out.end(), {Path::lanes8, Path::lanes16_in_parts, Path::reference});
  return out;
}

const char* name(Path path) {
  switch (path) {
    case Path::best: return "best";
    case Path::reference: return "reference";
    case Path::lanes8: return "8 lanes";
    case Path::lanes16: return "16 lanes";
    case Path::lanes16_in_parts: break;
  }
  return "16 lanes in parts";
}

void multiply(const Product& product, const Codes& a, const Codes& b, const float* c, float* d, Path path) {
  if (a.columns != b.rows)
    throw Error("[tensor_core] inner extents differ, got " + std::to_string(a.columns) + " and " +
                std::to_string(b.rows));
  const Plan plan(product);
  switch (path == Path::best ? paths().front() : path) {
    case Path::best:
    case Path::reference: return multiply_reference(product, a, b, c, d);
    case Path::lanes8: return multiply_fast(plan, a, b, c, d, tile_of_8, 16);
    case Path::lanes16: return multiply_fast(plan, a, b, c, d, tile_of_16, 32);
    case Path::lanes16_in_parts: return multiply_fast(plan, a, b, c, d, tile_of_16_in_parts, 32);
  }
}

}  // namespace ampcheck::tensor_core
