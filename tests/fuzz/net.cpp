// SPDX-License-Identifier: Apache-2.0
// TOML files that describe a net: read, and where all of it is small, run forward once.
#include "checks/train/net_toml.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "checks/models/real_data.h"
#include "checks/train/trainer.h"
#include "src/parallel.h"
#include "tests/fuzz/fuzz.h"

using namespace ampcheck;

namespace {

/// No number is large: a net of millions of weights would take the fuzzer's time, on the same way.
bool all_small(const TomlNode& node) {
  constexpr std::int64_t kMost = 64;
  if (node.kind == TomlNode::Kind::integer && (node.integer > kMost || node.integer < -kMost)) return false;
  for (const TomlEntry& entry : node.entries)
    if (!all_small(entry.value)) return false;
  return node.entries.size() <= 32;
}

/// Files of data that are read in microseconds: two images, and 17 characters.
class SmallData {
 public:
  SmallData() {
    std::string name = (std::filesystem::temp_directory_path() / "ampcheck-fuzz-XXXXXX").string();
    fuzz::require(mkdtemp(name.data()) != nullptr, "a folder can be made");
    folder_ = name;
    std::ofstream digits(folder_ / checks::models::kDigitsFile);
    for (int image = 0; image < 2; ++image) {
      for (int pixel = 0; pixel < 64; ++pixel) digits << (pixel + image) % 17 << ',';
      digits << image << '\n';
    }
    std::ofstream(folder_ / checks::models::kTextFile) << "an abacus adds up";
  }
  ~SmallData() {
    std::error_code none;
    std::filesystem::remove_all(folder_, none);
  }
  std::string folder() const { return folder_.string(); }

 private:
  std::filesystem::path folder_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (fuzz::text_of(data, size).find("library") != std::string_view::npos) return 0;  // would be loaded
  static const SmallData kData;
  set_threads(1);
  try {
    const TomlFile file(std::string(fuzz::text_of(data, size)), "fuzz.toml");
    const bool small = all_small(file.root());
    checks::train::Net net = checks::train::read_net(file, {.batch = 2}, kData.folder());
    fuzz::require(static_cast<bool>(net.forward), "a net that is taken can be called");
    if (!small) return 0;
    checks::train::TrainOptions options;
    options.own_net = std::move(net);
    checks::train::Trainer trainer(options);
    trainer.prepare();
  } catch (const TomlError& error) {
    fuzz::require(std::string_view(error.what()).starts_with("[fuzz.toml"), "a refusal names the file");
  } catch (const Error&) {
  }
  return 0;
}
