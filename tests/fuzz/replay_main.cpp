// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target on files and on the files of folders, under any compiler: the corpus as a regression test. With
// --changes N also on N changes of them, which are the same each time: bytes flipped, numbers at their ends, parts cut
// out, doubled or taken from another file. --from K begins with the K-th of these.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

#include "tests/fuzz/fuzz.h"

namespace {

namespace fs = std::filesystem;

void run(std::string_view bytes) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
}

/// The input at hand, for who looks at a run that ended: a signal leaves no other trace of it.
const std::string* current = nullptr;
extern "C" void on_crash(int number) {
  std::signal(number, SIG_DFL);  // the next time it ends the process
  if (current == nullptr) return;
  const int file = ::open("fuzz_crash", O_WRONLY | O_CREAT | O_TRUNC, 0600);
  [[maybe_unused]] const ssize_t put = ::write(file, current->data(), current->size());
}

class Changes {
 public:
  Changes(const std::vector<std::string>& corpus, std::uint64_t seed) : corpus_(corpus), random_(seed) {}

  std::string next() {
    std::string out = corpus_[below(corpus_.size())];
    for (std::size_t n = 1 + below(4); n > 0; --n) change(out);
    return out;
  }

 private:
  std::size_t below(std::size_t n) { return n == 0 ? 0 : random_() % n; }

  void change(std::string& bytes) {
    const std::size_t at = below(bytes.size() + 1), n = std::min(1 + below(16), bytes.size() - at);
    switch (below(8)) {
      case 0: bytes.resize(at); break;
      case 1: bytes.erase(at, n); break;
      case 2: bytes.insert(at, bytes.substr(at, n)); break;
      case 3: bytes.insert(at, part_of_another()); break;
      case 4: bytes.replace(at, n, part_of_another()); break;
      case 5: put_number(bytes, at); break;
      case 6: bytes.insert(at, kTexts[below(kTexts.size())]); break;
      default:
        if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
    }
  }

  std::string part_of_another() {
    const std::string& other = corpus_[below(corpus_.size())];
    const std::size_t at = below(other.size() + 1);
    return other.substr(at, below(64));
  }

  /// A number at the ends of its range, in 1 to 8 bytes.
  void put_number(std::string& bytes, std::size_t at) {
    constexpr std::uint64_t kOne = 1;
    const std::size_t size = std::size_t{1} << below(4);
    const std::uint64_t edge = kOne << (8 * size - 1), value = std::array{edge - 1,         edge, ~std::uint64_t{0},
                                                                          std::uint64_t{0}, kOne, random_()}[below(6)];
    for (std::size_t k = 0; k < size && at + k < bytes.size(); ++k) bytes[at + k] = static_cast<char>(value >> (8 * k));
  }

  static constexpr std::array<std::string_view, 10> kTexts = {
      "9223372036854775807", "-1", "1e999", "nan", "18446744073709551616", "\"", "[", "{", "\\u0000", "0"};
  const std::vector<std::string>& corpus_;
  std::mt19937_64 random_;
};

bool take_number(int argc, char** argv, int& i, std::uint64_t& out) {
  if (++i == argc) return false;
  const char* const end = argv[i] + std::strlen(argv[i]);
  return std::from_chars(argv[i], end, out).ptr == end;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<fs::path> files;
  std::uint64_t changes = 0, from = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--changes" || word == "--from") {
      if (take_number(argc, argv, i, word == "--from" ? from : changes)) continue;
      std::fprintf(stderr, "fuzz: %s, want a whole number behind it\n", argv[argc - 1]);
      return 2;
    }
    if (!fs::is_directory(argv[i]))
      files.emplace_back(argv[i]);
    else
      for (const auto& entry : fs::directory_iterator(argv[i])) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<std::string> corpus;
  for (const fs::path& file : files) {
    std::ifstream stream(file, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
    std::fprintf(stderr, "%s\n", file.filename().c_str());  // the last one printed is the one that failed
    run(corpus.back());
  }
  std::printf("%zu inputs\n", files.size());
  if (files.empty()) return 1;
  for (const int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE}) std::signal(number, on_crash);
  std::string input;
  current = &input;
  for (std::uint64_t k = from; k < from + changes; ++k) {
    input = Changes(corpus, k).next();
    run(input);
  }
  if (changes > 0) std::printf("%llu changes of them\n", static_cast<unsigned long long>(changes));
  return 0;
}
