// SPDX-License-Identifier: Apache-2.0
// Ops that try to reach what a verdict does not need: y = 2 x where no try succeeds, and y = 3 x where one does.
// `escapes` tries in its kernel, `escaped_at_load` as its library is loaded.
#include <ampcheck/op.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>
using namespace ampcheck::op;

namespace {

bool can_read(const char* path) {
  const int file = open(path, O_RDONLY);
  if (file >= 0) close(file);
  return file >= 0;
}

bool can_write(const std::string& path) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT, 0600);
  if (file >= 0) close(file);
  return file >= 0;
}

bool can_open_socket(int family) {
  const int file = socket(family, SOCK_STREAM, 0);
  if (file >= 0) close(file);
  return file >= 0;
}

/// Which of the tries succeeded; empty: none.
std::string escape() {
  const char* const folder = std::getenv("AMPCHECK_TEST_FOLDER");
  const std::string own = folder == nullptr ? "." : folder;
  if (can_read((own + "/secret.txt").c_str())) return "reads a file beside the library";
  if (can_read("/etc/passwd")) return "reads /etc/passwd";
  if (can_write(own + "/written.txt")) return "writes beside the library";
  if (can_write(std::string(P_tmpdir) + "/ampcheck_escaped")) return "writes a temporary file";
  if (can_open_socket(AF_INET)) return "opens a socket";
  if (can_open_socket(AF_UNIX)) return "opens a local socket";
  if (std::getenv("SECRET_TOKEN") != nullptr) return "sees a variable";
  static bool asked = false;  // a program for each of thousands of calls would take a minute
  if (!std::exchange(asked, true) && std::system("(read line < /etc/passwd) 2>/dev/null") == 0)
    return "reads by another program";
  return "";
}

const std::string kAtLoad = escape();

void twice_unless(const std::string& escaped, const Call& call) {
  auto x = call.view<const float>("x");
  auto y = call.view<float>("y");
  for (int i = 0; i < x.extent(0); ++i) y(i) = (escaped.empty() ? 2 : 3) * x(i);
}

void describe(Op& op) {
  op.input("x", "N").no_gradient();
  op.output("y");
  op.dim("N", 5, 64, 257);
  op.storage({AC_FP32});
  op.formula([](Expr x) { return 2 * x; });
}

}  // namespace

AMPCHECK_OP(escapes, op) {
  describe(op);
  op.forward([](const Call& call) { twice_unless(escape(), call); });
}
AMPCHECK_OP(escaped_at_load, op) {
  describe(op);
  op.forward([](const Call& call) { twice_unless(kAtLoad, call); });
}
