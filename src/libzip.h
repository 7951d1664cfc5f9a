// SPDX-License-Identifier: Apache-2.0
// libzip, loaded when the first .npz is read or written: it brings a cryptographic library along, which costs every
// start of the program milliseconds. Only src/npz.cpp includes this.
#pragma once

#include <zip.h>

namespace ampcheck {

/// The functions of libzip under their names without "zip_".
struct Libzip {
// clang-format comes to no end with this list.
// clang-format off
#define AMPCHECK_ZIP_FUNCTIONS(X) \
  X(close) X(discard) X(error_fini) X(error_init) X(error_strerror) X(fclose) X(file_add) X(file_get_error) \
  X(file_set_dostime) X(fopen_index) X(fread) X(get_num_entries) X(open_from_source) X(set_file_compression) \
  X(source_buffer) X(source_buffer_create) X(source_close) X(source_free) X(source_keep) X(source_open) \
  X(source_read) X(source_stat) X(stat_index) X(stat_init) X(strerror)
// clang-format on
#define AMPCHECK_ZIP_MEMBER(NAME) decltype(&::zip_##NAME) NAME = nullptr;
  AMPCHECK_ZIP_FUNCTIONS(AMPCHECK_ZIP_MEMBER)
#undef AMPCHECK_ZIP_MEMBER
};

/// Loads it once, for the life of the process. EnvironmentError without it.
const Libzip& libzip();

}  // namespace ampcheck
