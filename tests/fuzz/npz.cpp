// SPDX-License-Identifier: Apache-2.0
// .npz files: as they are, and as the entry of a sound archive, whose checksum no mutation would hit.
#include "src/npz.h"

#include <zip.h>

#include "src/error.h"
#include "tests/fuzz/fuzz.h"

using namespace ampcheck;

namespace {

void read(std::string_view bytes) {
  try {
    const std::vector<NamedTensor> tensors = parse_npz(bytes, "file");
    const std::vector<NamedTensor> again = parse_npz(npz_bytes(tensors), "file");
    fuzz::require(again.size() == tensors.size(), "as many tensors come back");
    for (std::size_t i = 0; i < tensors.size(); ++i)
      fuzz::require(again[i].name == tensors[i].name && fuzz::same_bits(again[i].tensor, tensors[i].tensor),
                    "a tensor comes back with its name and bits");
  } catch (const Error&) {
  }
}

/// The archive whose one entry has these bytes.
std::string archive_of(const std::string& name, std::string_view bytes, bool deflated) {
  zip_error_t error;
  zip_error_init(&error);
  zip_source_t* const target = zip_source_buffer_create(nullptr, 0, 0, &error);
  zip_source_keep(target);
  zip_t* const archive = zip_open_from_source(target, ZIP_TRUNCATE, &error);
  const zip_int64_t at =
      zip_file_add(archive, name.c_str(), zip_source_buffer(archive, bytes.data(), bytes.size(), 0), ZIP_FL_ENC_GUESS);
  std::string out;
  if (at >= 0) zip_set_file_compression(archive, 0, deflated ? ZIP_CM_DEFLATE : ZIP_CM_STORE, 1);
  if (at >= 0 && zip_close(archive) == 0) {
    zip_stat_t facts;
    zip_source_stat(target, &facts);
    out.resize(facts.size);
    zip_source_open(target);
    zip_source_read(target, out.data(), out.size());
    zip_source_close(target);
  } else {
    zip_discard(archive);
  }
  zip_source_free(target);
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = fuzz::text_of(data, size);
  if (bytes.starts_with("PK")) {
    read(bytes);
    return 0;
  }
  fuzz::Bytes from(data, size);
  const bool deflated = (from.take<std::uint8_t>() & 1) != 0;
  const std::string name = from.word();
  if (name.empty()) return 0;
  read(archive_of(name, bytes.substr(std::min(bytes.size(), name.size() + 2)), deflated));
  return 0;
}
