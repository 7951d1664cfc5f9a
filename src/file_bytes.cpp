// SPDX-License-Identifier: Apache-2.0
#include "src/file_bytes.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <new>

#include "src/error.h"

namespace ampcheck {

namespace {

/// A descriptor that closes itself.
struct File {
  int fd = -1;
  ~File() {
    if (fd >= 0) ::close(fd);
  }
};

}  // namespace

std::string read_bytes(const std::string& path, const std::string& what) {
  const auto fail = [&](const std::string& why) -> Error { return Error("[" + what + "] '" + path + "': " + why); };
  const File file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};  // a pipe would wait for its writer
  if (file.fd < 0) throw MissingFileError(fail(std::string("cannot be opened: ") + std::strerror(errno)).what());
  struct stat facts {};
  if (::fstat(file.fd, &facts) != 0 || !S_ISREG(facts.st_mode))
    throw MissingFileError(fail("is no regular file").what());
  const auto size = static_cast<std::size_t>(facts.st_size);
  std::string out;
  try {
    out.resize(size);
  } catch (const std::exception&) {
    throw fail("got " + std::to_string(size) + " bytes, want a file that fits into memory");
  }
  for (std::size_t at = 0; at < size;) {
    const ssize_t got = ::read(file.fd, out.data() + at, size - at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw fail(std::string("cannot be read: ") + std::strerror(errno));
    if (got == 0)
      throw fail("got " + std::to_string(at) + " bytes, want " + std::to_string(size) +
                 ": it became shorter while it was read");
    at += static_cast<std::size_t>(got);
  }
  return out;
}

std::uint32_t crc32(std::string_view bytes) {
  // [k][byte]: what a byte does to the sum of which k bytes follow, so that eight are taken at once.
  static constexpr auto kTables = [] {
    std::array<std::array<std::uint32_t, 256>, 8> out{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t c = i;
      for (int bit = 0; bit < 8; ++bit) c = (c & 1) != 0 ? 0xedb88320u ^ (c >> 1) : c >> 1;
      out[0][i] = c;
    }
    for (std::size_t k = 1; k < out.size(); ++k)
      for (std::size_t i = 0; i < 256; ++i) out[k][i] = out[0][out[k - 1][i] & 0xff] ^ (out[k - 1][i] >> 8);
    return out;
  }();
  std::uint32_t c = 0xffffffffu;
  for (; bytes.size() >= 8; bytes.remove_prefix(8)) {
    const std::uint64_t word = take<std::uint64_t>(bytes) ^ c;
    c = 0;
    for (std::size_t k = 0; k < 8; ++k) c ^= kTables[7 - k][word >> (8 * k) & 0xff];
  }
  for (const char byte : bytes) c = kTables[0][(c ^ static_cast<unsigned char>(byte)) & 0xff] ^ (c >> 8);
  return ~c;
}

std::string quoted_text(std::string_view text) {
  constexpr std::size_t kMost = 80;
  std::string out = "'";
  for (const char c : text.substr(0, kMost)) out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  return out + (text.size() > kMost ? "...'" : "'");
}

}  // namespace ampcheck
