// SPDX-License-Identifier: Apache-2.0
// Functions that a GPU's runtime has: printf and assert.
#include <charconv>

#include "src/ptx/machine.h"

namespace ampcheck::ptx {

namespace {

/// A text in memory, up to its end or 1000 characters.
template <class Read>
std::string text_at(Read read, std::uint64_t address) {
  std::string out;
  for (std::uint8_t c = 0; out.size() < 1000 && read(address + out.size(), &c, 1) && c != 0;)
    out += static_cast<char>(c);
  return out;
}

std::string number_text(char conversion, std::uint64_t bits, bool wide) {
  if (conversion == 'c') return std::string(1, static_cast<char>(bits));
  if (std::string_view("feEgGaF").find(conversion) != std::string_view::npos) {
    char buffer[64];
    const auto end = std::to_chars(buffer, buffer + sizeof buffer, std::bit_cast<double>(bits)).ptr;
    return {buffer, end};
  }
  char buffer[32];
  if (conversion == 'd' || conversion == 'i') {
    const auto value =
        wide ? static_cast<std::int64_t>(bits) : static_cast<std::int64_t>(static_cast<std::int32_t>(bits));
    return {buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr};
  }
  const std::uint64_t value = wide ? bits : bits & 0xffffffffu;
  const bool hex = conversion == 'x' || conversion == 'X' || conversion == 'p';
  return (conversion == 'p' ? "0x" : "") +
         std::string(buffer, std::to_chars(buffer, buffer + sizeof buffer, value, hex ? 16 : 10).ptr);
}

/// What printf prints, numbers without width or precision of the format: the shortest that say the value.
template <class Read>
std::string formatted(Read read, const std::string& format, std::uint64_t arguments) {
  std::string out;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      out += format[i];
      continue;
    }
    if (++i < format.size() && format[i] == '%') {
      out += '%';
      continue;
    }
    int longs = 0;
    while (i < format.size() && std::string_view("0123456789.+- #lhzjt*").find(format[i]) != std::string_view::npos) {
      if (format[i] == 'l' || format[i] == 'z' || format[i] == 'j' || format[i] == 't') ++longs;
      ++i;
    }
    if (i >= format.size()) break;
    const char conversion = format[i];
    const bool wide = longs > 0 || std::string_view("feEgGaFsp").find(conversion) != std::string_view::npos;
    const std::uint64_t size = wide ? 8 : 4;
    arguments = (arguments + size - 1) / size * size;
    std::uint64_t bits = 0;
    if (!read(arguments, &bits, size)) break;
    arguments += size;
    out += conversion == 's' ? text_at(read, bits) : number_text(conversion, bits, wide);
  }
  return out;
}

}  // namespace

bool Machine::special_call(WarpState& w, const Instruction& in, Mask active, const std::string& name) {
  if (name != "vprintf" && name != "__assertfail" && name != "__assert_fail") return false;
  const std::uint32_t* extra = &program_.extra[in.more];
  const std::uint32_t count = *extra++;
  if (count < 2) return false;
  for (Mask rest = active; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    const auto read = [&](std::uint64_t address, void* to, std::uint64_t bytes) {
      const std::uint8_t* from = nullptr;
      if (address >> 56 == kLocalWindow >> 56) {
        const std::uint64_t at = address - kLocalWindow;
        if (at + bytes <= program_.local_bytes)
          from = w.local.data() + static_cast<std::size_t>(lane) * program_.local_bytes + at;
      } else if (const Memory* const memory = global_at(address, bytes); memory != nullptr) {
        from = memory->host + (address - memory->address);
      }
      if (from != nullptr) std::memcpy(to, from, bytes);
      return from != nullptr;
    };
    const auto argument = [&](std::uint32_t k) {
      std::uint64_t value = 0;
      std::memcpy(&value, w.local.data() + static_cast<std::size_t>(lane) * program_.local_bytes + extra[2 * k],
                  std::min<std::uint32_t>(8, extra[2 * k + 1]));
      return value;
    };
    if (name == "vprintf") {
      print(formatted(read, text_at(read, argument(0)), argument(1)));
      continue;
    }
    note(Code::ac501, "assertion", in, [&] {
      return "assertion '" + text_at(read, argument(0)) + "' failed, line " +
             std::to_string(argument(2) & 0xffffffffu) + " (" + thread_text(w, lane) + ")";
    });
    stopped_ = true;
    break;
  }
  return true;
}

}  // namespace ampcheck::ptx
