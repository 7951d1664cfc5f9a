// SPDX-License-Identifier: Apache-2.0
// Squares by kernels that keep something from call to call, or that work on after they have returned; honest ones
// beside them.
#include <chrono>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "unary.h"

namespace {

using namespace ampcheck::op;

template <class T>
void square(const View<const T>& x, const View<T>& y) {
  for (std::int64_t i = 0; i < x.size(); ++i) y[i] = T(float(x[i]) * float(x[i]));
}

/// y = x^2, its forward `Forward<T>::run(x, y)`.
template <template <class> class Forward>
void describe(Op& op, const char* what) {
  op.summary(what);
  op.formula([](Expr x) { return x * x; });
  describe_unary(
      op, [](float x) { return x * x; }, [](float x, float g) { return 2 * x * g; });
  op.forward([]<class T>(Type<T>, const Call& call) { Forward<T>::run(call.view<const T>("x"), call.view<T>("y")); });
}

/// The result of the first call with that key, whatever the data.
template <class T, class Key>
void keep_by(const Key& key, const View<const T>& x, const View<T>& y) {
  static std::map<Key, std::vector<T>> results;
  auto [kept, first] = results.try_emplace(key);
  if (first) {
    square(x, y);
    for (std::int64_t i = 0; i < y.size(); ++i) kept->second.push_back(y[i]);
  }
  for (std::int64_t i = 0; i < y.size(); ++i) y[i] = kept->second[static_cast<std::size_t>(i)];
}

template <class T>
struct ByShape {
  static void run(const View<const T>& x, const View<T>& y) { keep_by(std::pair(x.extent(0), x.extent(1)), x, y); }
};
template <class T>
struct ByAddress {
  static void run(const View<const T>& x, const View<T>& y) {
    const void* const at = x.size() == 0 ? nullptr : &x[0];
    keep_by(std::tuple(at, x.extent(0), x.extent(1)), x, y);
  }
};
template <class T>
struct ByAllValues {
  static void run(const View<const T>& x, const View<T>& y) {
    std::vector<char> values;
    for (std::int64_t i = 0; i < x.size(); ++i) {
      const char* const bytes = reinterpret_cast<const char*>(&x[i]);
      values.insert(values.end(), bytes, bytes + sizeof(T));
    }
    keep_by(std::tuple(x.extent(0), x.extent(1), values), x, y);
  }
};
template <class T>
struct CountsCalls {
  static void run(const View<const T>& x, const View<T>& y) {
    static int calls = 0;
    square(x, y);
    if (++calls > 3000 && y.size() > 0) y[0] = T(float(y[0]) + 1);
  }
};
template <class T>
struct WritesLater {
  static void run(const View<const T>& x, const View<T>& y) {
    std::thread([x, y] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      square(x, y);
    }).detach();
  }
};
template <class T>
struct Joins {
  static void run(const View<const T>& x, const View<T>& y) {
    std::thread([x, y] { square(x, y); }).join();
  }
};

}  // namespace

AMPCHECK_OP(kept_by_shape, op) { describe<ByShape>(op, "broken: keeps its results by the shape of x"); }
AMPCHECK_OP(kept_by_address, op) { describe<ByAddress>(op, "broken: keeps its results by the address of x"); }
AMPCHECK_OP(counts_calls, op) { describe<CountsCalls>(op, "broken: right for 3000 calls"); }
AMPCHECK_OP(writes_later, op) { describe<WritesLater>(op, "broken: a thread writes after the return"); }
AMPCHECK_OP(joins_its_thread, op) { describe<Joins>(op, "y = x^2, by a thread"); }
AMPCHECK_OP(kept_by_all_values, op) { describe<ByAllValues>(op, "y = x^2, kept by all values of x"); }
