// SPDX-License-Identifier: Apache-2.0
#include "src/libzip.h"

#include <dlfcn.h>

#include <string>

#include "src/error.h"

namespace ampcheck {

namespace {

Libzip load() {
  void* const library = dlopen(AMPCHECK_ZIP_SONAME, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw EnvironmentError(std::string("[npz] got no libzip (") + dlerror() + "), want it installed for .npz files");
  Libzip out;
#define AMPCHECK_ZIP_LOAD(NAME)                                                  \
  out.NAME = reinterpret_cast<decltype(out.NAME)>(dlsym(library, "zip_" #NAME)); \
  if (out.NAME == nullptr) throw EnvironmentError("[npz] got a libzip without zip_" #NAME);
  AMPCHECK_ZIP_FUNCTIONS(AMPCHECK_ZIP_LOAD)
#undef AMPCHECK_ZIP_LOAD
  return out;
}

}  // namespace

const Libzip& libzip() {
  static const Libzip kLibrary = load();
  return kLibrary;
}

}  // namespace ampcheck
