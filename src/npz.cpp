// SPDX-License-Identifier: Apache-2.0
#include "src/npz.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <new>

#include "src/error.h"
#include "src/file_bytes.h"
#include "src/libzip.h"
#include "src/npy.h"

namespace ampcheck {

namespace {

constexpr std::size_t kStep = std::size_t{1} << 20;  // bytes unpacked at a time
constexpr std::string_view kSuffix = ".npy";

[[noreturn]] void fail(const std::string& where, const std::string& what) {
  throw Error("[npz] '" + where + "': " + what);
}

/// Into memory; libzip does not always say that this is what it lacks.
[[noreturn]] void fail_to_write(const std::string& what) {
  if (errno == ENOMEM) throw std::bad_alloc();
  throw Error("[npz] " + what);
}

struct CloseArchive {
  void operator()(zip_t* archive) const { libzip().discard(archive); }
};
struct CloseEntry {
  void operator()(zip_file_t* file) const { libzip().fclose(file); }
};
using Archive = std::unique_ptr<zip_t, CloseArchive>;
using EntryFile = std::unique_ptr<zip_file_t, CloseEntry>;

std::string words_of(zip_error_t* error) {
  const std::string out = libzip().error_strerror(error);
  libzip().error_fini(error);
  return out;
}

/// The archive in memory that outlives it. CHECKCONS compares the local headers with the central directory.
Archive open_archive(std::string_view bytes, const std::string& where) {
  constexpr std::size_t kSmallest = 22;  // libzip takes no bytes for an empty archive
  if (bytes.size() < kSmallest) fail(where, "got " + std::to_string(bytes.size()) + " bytes, want a zip archive");
  zip_error_t error;
  libzip().error_init(&error);
  zip_source_t* const source = libzip().source_buffer_create(bytes.data(), bytes.size(), 0, &error);
  if (source == nullptr) fail(where, words_of(&error));
  Archive archive(libzip().open_from_source(source, ZIP_RDONLY | ZIP_CHECKCONS, &error));
  if (archive == nullptr) {
    libzip().source_free(source);
    fail(where, "is no sound .npz file: " + words_of(&error));
  }
  libzip().error_fini(&error);
  return archive;
}

/// The name of an entry's tensor.
std::string tensor_name(const zip_stat_t& facts, std::span<const NamedTensor> before, const std::string& where) {
  const std::string_view file = facts.name;
  if (!file.ends_with(kSuffix)) fail(where, "got the entry " + quoted_text(file) + ", want NAME.npy");
  const std::string name(file.substr(0, file.size() - kSuffix.size()));
  require_tensor_name(name, before, "[npz] '" + where + "': ");
  if (name.find_first_of("/\\") != std::string::npos || name.find("..") != std::string::npos)
    fail(where, "got the entry " + quoted_text(file) + ", want a name without '/', '\\' and '..'");
  return name;
}

zip_stat_t facts_of(zip_t* archive, zip_uint64_t index, const std::string& where) {
  zip_stat_t facts;
  libzip().stat_init(&facts);
  // ENC_RAW: the name's bytes as they are, not as another code page would have them.
  if (libzip().stat_index(archive, index, ZIP_FL_ENC_RAW, &facts) != 0)
    fail(where, std::string("entry ") + std::to_string(index + 1) + ": " + libzip().strerror(archive));
  constexpr zip_uint64_t kWanted = ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD;
  if ((facts.valid & kWanted) != kWanted)
    fail(where, "entry " + std::to_string(index + 1) + ", got no name, size or method");
  if (facts.encryption_method != ZIP_EM_NONE)
    fail(where, "got the entry " + quoted_text(facts.name) + " encrypted, want it plain");
  if (facts.comp_method != ZIP_CM_STORE && facts.comp_method != ZIP_CM_DEFLATE)
    fail(where, "got the entry " + quoted_text(facts.name) + " packed by method " + std::to_string(facts.comp_method) +
                    ", want stored or deflated");
  return facts;
}

/// Reads up to `most` more bytes.
void unpack_more(zip_file_t* file, std::size_t most, const std::string& what, std::string& out) {
  while (most > 0) {
    const std::size_t before = out.size(), step = std::min(most, kStep);
    out.resize(before + step);
    const zip_int64_t got = libzip().fread(file, out.data() + before, step);
    if (got < 0) throw Error(what + "cannot be unpacked: " + libzip().error_strerror(libzip().file_get_error(file)));
    out.resize(before + static_cast<std::size_t>(got));
    if (got == 0) return;
    most -= static_cast<std::size_t>(got);
  }
}

/// First the header, then what it says and no more.
Tensor unpack(zip_t* archive, zip_uint64_t index, const zip_stat_t& facts, const std::string& where) {
  const EntryFile file(libzip().fopen_index(archive, index, 0));
  const std::string entry = where + "', entry '" + facts.name, what = "[npz] '" + entry + "': ";
  if (file == nullptr) throw Error(what + libzip().strerror(archive));
  std::string bytes;
  unpack_more(file.get(), std::min<std::size_t>(facts.size, 12 + kMostNpyHeader), what, bytes);
  const NpyHeader header = parse_npy_header(bytes, entry);
  const std::size_t whole = header.data_at + header.data_size;
  if (facts.size != whole)
    throw Error(what + "got " + std::to_string(facts.size) + " bytes, want " + std::to_string(whole) + " for shape " +
                header.shape.str());
  unpack_more(file.get(), whole - bytes.size(), what, bytes);
  std::string rest;
  unpack_more(file.get(), 1, what, rest);  // the end is where the checksum is compared
  if (!rest.empty())
    throw Error(what + "unpacks to more than the " + std::to_string(whole) + " bytes that it declares");
  return parse_npy_tensor(bytes, entry);
}

}  // namespace

std::vector<NamedTensor> parse_npz(std::string_view bytes, const std::string& where) {
  const Archive archive = open_archive(bytes, where);
  const zip_int64_t count = libzip().get_num_entries(archive.get(), 0);
  if (count > kMostNpzEntries)
    fail(where, "got " + std::to_string(count) + " entries, want at most " + std::to_string(kMostNpzEntries));
  const std::size_t most = std::max(kMostNpzUnpacked, bytes.size() / 64 * 64 * kMostNpzRatio);
  std::size_t total = 0;
  std::vector<NamedTensor> out;
  for (zip_uint64_t i = 0; i < static_cast<zip_uint64_t>(count); ++i) {
    const zip_stat_t facts = facts_of(archive.get(), i, where);
    const std::string name = tensor_name(facts, out, where);
    if (facts.size > most - total)
      fail(where, "got entries of more than " + std::to_string(most) + " bytes unpacked in a file of " +
                      std::to_string(bytes.size()));
    total += facts.size;
    out.push_back({name, unpack(archive.get(), i, facts, where)});
  }
  return out;
}

std::string npz_bytes(std::span<const NamedTensor> tensors) {
  errno = 0;
  zip_error_t error;
  libzip().error_init(&error);
  zip_source_t* const target = libzip().source_buffer_create(nullptr, 0, 0, &error);
  if (target == nullptr) fail_to_write(words_of(&error));
  libzip().source_keep(target);  // ours beyond zip_close
  const std::unique_ptr<zip_source_t, void (*)(zip_source_t*)> ours(target, libzip().source_free);
  Archive archive(libzip().open_from_source(target, ZIP_TRUNCATE, &error));
  if (archive == nullptr) {
    libzip().source_free(target);
    fail_to_write(words_of(&error));
  }
  std::vector<std::string> files;  // read by zip_close
  files.reserve(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    require_tensor_name(tensors[i].name, tensors.first(i), "[npz] ");
    if (tensors[i].name.find_first_of("/\\") != std::string::npos || tensors[i].name.find("..") != std::string::npos)
      throw Error("[npz] got the name " + quoted_text(tensors[i].name) + ", want one without '/', '\\' and '..'");
    files.push_back(npy_bytes(tensors[i].tensor));
    zip_source_t* const source = libzip().source_buffer(archive.get(), files.back().data(), files.back().size(), 0);
    const std::string file = tensors[i].name + std::string(kSuffix);
    const zip_int64_t index =
        source == nullptr ? -1 : libzip().file_add(archive.get(), file.c_str(), source, ZIP_FL_ENC_UTF_8);
    if (index < 0) {
      if (source != nullptr) libzip().source_free(source);
      fail_to_write(libzip().strerror(archive.get()));
    }
    constexpr zip_uint16_t kFirstDay = 0x21;  // 1980-01-01: the same bytes at any time
    const auto at = static_cast<zip_uint64_t>(index);
    if (libzip().set_file_compression(archive.get(), at, ZIP_CM_STORE, 0) != 0 ||
        libzip().file_set_dostime(archive.get(), at, 0, kFirstDay, 0) != 0)
      fail_to_write(libzip().strerror(archive.get()));
  }
  if (libzip().close(archive.get()) != 0) fail_to_write(libzip().strerror(archive.get()));
  static_cast<void>(archive.release());                                              // closed
  if (tensors.empty()) return std::string("PK\x05\x06", 4) + std::string(18, '\0');  // libzip writes no empty archive
  zip_stat_t facts;
  libzip().stat_init(&facts);
  std::string out;
  if (libzip().source_stat(target, &facts) != 0 || libzip().source_open(target) != 0)
    throw Error("[npz] cannot read back what was written");
  out.resize(facts.size);
  const zip_int64_t got = libzip().source_read(target, out.data(), out.size());
  libzip().source_close(target);
  if (got != static_cast<zip_int64_t>(out.size())) throw Error("[npz] cannot read back what was written");
  return out;
}

}  // namespace ampcheck
