// SPDX-License-Identifier: Apache-2.0
#include "checks/case/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <mutex>
#include <set>

#include "checks/case/device_buffers.h"
#include "checks/case/kernel_memory.h"
#include "src/error.h"

namespace ampcheck::checks {

namespace {

constexpr std::size_t kGuard = 4096;

Shape strides_of(const Shape& shape, Layout layout, std::int64_t& elements) {
  Shape strides = row_major_strides(shape);
  elements = shape.count();
  const int last = shape.rank - 1;
  switch (layout) {
    case Layout::dense: break;
    case Layout::padded: {  // rows of the last axis end in a gap of 3 elements
      std::int64_t step = shape.rank ? shape[last] + 3 : 1;
      for (int i = last - 1; i >= 0; --i) {
        strides[i] = step;
        step *= shape[i];
      }
      elements = shape.rank ? step : 1;
      break;
    }
    case Layout::last2:
      for (int i = 0; i < shape.rank; ++i) strides[i] *= 2;
      elements *= 2;
      break;
    case Layout::transposed:
      if (shape.rank >= 2) {
        strides[last] = shape[last - 1] * strides[last];
        strides[last - 1] = 1;
        strides[last] = shape[last - 1];
      }
      break;
    case Layout::expanded:
      if (shape.rank > 0) {
        strides = row_major_strides(shape);
        for (int i = 0; i < last; ++i) strides[i] /= std::max<std::int64_t>(shape[last], 1);
        strides[last] = 0;
      }
      break;
  }
  return strides;
}

KernelMemory* lent = nullptr;

Tensor guarded_buffer(std::size_t bytes) {
  if (lent == nullptr) return Tensor::uninitialized(Dtype::u8, Shape{static_cast<std::int64_t>(bytes)});
  const MemoryScope scope(lent);
  return Tensor::uninitialized(Dtype::u8, Shape{static_cast<std::int64_t>(lent->whole(bytes))});
}

}  // namespace

void lend_kernel_memory(KernelMemory* memory) { lent = memory; }
KernelMemory* kernel_memory() { return lent; }

Layout layout_of(const std::string& text, const std::string& tensor) {
  const std::size_t colon = text.find(':');
  if (colon != std::string::npos && text.substr(colon + 1) != tensor) return Layout::dense;
  const std::string kind = text.substr(0, colon);
  if (kind == "dense") return Layout::dense;
  if (kind == "padded") return Layout::padded;
  if (kind == "last2") return Layout::last2;
  if (kind == "transposed") return Layout::transposed;
  if (kind == "expanded") return Layout::expanded;
  throw Error("[layout] got '" + text + "', want dense, padded, last2, transposed or expanded, optionally :tensor");
}

std::uint64_t poison(Dtype dtype, int which) {
  switch (dtype) {
    case Dtype::fp64: return which ? 0x7ff8dead0000beefull : 0xfff8000012345678ull;
    case Dtype::fp32: return which ? 0x7fc0deadu : 0xffc12345u;
    case Dtype::fp16: return which ? 0x7e5au : 0xfe15u;
    case Dtype::bf16: return which ? 0x7fdau : 0xffc5u;
    case Dtype::e4m3fn: return which ? 0x7fu : 0xffu;
    case Dtype::e5m2: return which ? 0x7eu : 0xffu;
    case Dtype::i32: return which ? 0x7fffff01u : 0x80000002u;
    case Dtype::i64: return which ? 0x7fffffffffffff01ull : 0x8000000000000002ull;
    case Dtype::u8: return which ? 0xa5u : 0x5au;
  }
  return 0;
}

GuardedTensor::GuardedTensor(Dtype dtype, const Shape& shape, Layout layout, std::uint64_t fill) {
  const auto size = static_cast<std::size_t>(ampcheck::bytes(dtype));
  std::int64_t elements = 0;
  view_ = {nullptr, dtype, shape, strides_of(shape, layout, elements)};
  const std::size_t body = static_cast<std::size_t>(elements) * size;
  buffer_ = guarded_buffer(2 * kGuard + (body + 127) / 64 * 64);
  const std::span<std::byte> all = bytes();
  std::byte pattern[64];  // the buffer is a whole number of these
  for (std::size_t i = 0; i < sizeof pattern; i += size) std::memcpy(pattern + i, &fill, size);
  for (std::size_t i = 0; i < all.size(); i += sizeof pattern) std::memcpy(all.data() + i, pattern, sizeof pattern);
  // Aligned as a device allocation would be; a padded tensor starts off the alignment as a slice does.
  view_.data = all.data() + kGuard + (layout == Layout::padded ? 5 * size : 0);
}

GuardedTensor GuardedTensor::clone() const {
  GuardedTensor copy;
  copy.buffer_ = guarded_buffer(bytes().size());
  std::memcpy(copy.buffer_.data(), buffer_.data(), bytes().size());
  copy.view_ = view_;
  copy.view_.data = copy.bytes().data() + (static_cast<std::byte*>(view_.data) - bytes().data());
  return copy;
}

bool GuardedTensor::same_bytes(const GuardedTensor& other) const {
  return bytes().size() == other.bytes().size() &&
         std::memcmp(bytes().data(), other.bytes().data(), bytes().size()) == 0;
}

std::int64_t GuardedTensor::changed_outside(const GuardedTensor& before) const {
  if (view_.is_dense()) {  // all that is outside lies before and behind
    const auto start = static_cast<std::size_t>(static_cast<std::byte*>(view_.data) - bytes().data());
    const auto end =
        start + static_cast<std::size_t>(view_.count()) * static_cast<std::size_t>(ampcheck::bytes(view_.dtype));
    const auto same = [&](std::size_t from, std::size_t to) {
      return std::memcmp(bytes().data() + from, before.bytes().data() + from, to - from) == 0;
    };
    if (same(0, start) && same(end, bytes().size())) return 0;
  }
  const GuardedTensor expected = before.clone();
  copy_elements(view_, expected.view_);
  if (same_bytes(expected)) return 0;
  std::int64_t changed = 0;
  for (std::size_t i = 0; i < bytes().size(); ++i) changed += bytes()[i] != expected.bytes()[i];
  return changed;
}

std::string GuardedTensor::where_outside(const GuardedTensor& before) const {
  const GuardedTensor expected = before.clone();
  copy_elements(view_, expected.view_);
  std::int64_t last = 0, first_behind = -1, first_between = -1, first_before = -1, counts[3] = {};
  for (int i = 0; i < view_.shape.rank; ++i) last += (view_.shape[i] - 1) * view_.strides[i];
  const auto start = static_cast<std::byte*>(view_.data) - bytes().data();
  const std::int64_t end = start + (view_.count() == 0 ? 0 : (last + 1) * ampcheck::bytes(view_.dtype));
  for (std::size_t k = 0; k < bytes().size(); ++k) {
    if (bytes()[k] == expected.bytes()[k]) continue;
    const auto at = static_cast<std::int64_t>(k);
    std::int64_t& first = at < start ? first_before : at < end ? first_between : first_behind;
    if (++counts[at < start ? 0 : at < end ? 1 : 2] == 1) first = at;
  }
  std::string out;
  const auto say = [&](std::int64_t count, const std::string& where) {
    out +=
        count == 0 ? "" : fmt::format("{}{} byte{} {}", out.empty() ? "" : "; ", count, count == 1 ? "" : "s", where);
  };
  say(counts[0], fmt::format("before its first element, the farthest {} bytes before it", start - first_before));
  say(counts[1],
      fmt::format("in the gaps of its strides, the first {} bytes from its first element", first_between - start));
  say(counts[2],
      fmt::format("behind its last element, the first {}",
                  first_behind == end ? "right behind it" : fmt::format("after {} others", first_behind - end)));
  return out;
}

std::int64_t differing(const GuardedTensor& a, const GuardedTensor& b) {
  const TensorView &x = a.view(), &y = b.view();
  const std::int64_t n = x.count();
  const auto size = static_cast<std::size_t>(bytes(x.dtype));
  if (x.is_dense() && y.is_dense() && (n == 0 || std::memcmp(x.data, y.data, static_cast<std::size_t>(n) * size) == 0))
    return 0;
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < n; ++i) count += bits_at(x, i) != bits_at(y, i);
  return count;
}

namespace {

struct Launches {
  std::mutex mutex;
  std::multiset<std::chrono::steady_clock::time_point> starts;  ///< of those that run
};
/// Never destroyed: a watcher may ask while the program ends.
Launches& launches() {
  static Launches* const all = new Launches;
  return *all;
}

}  // namespace

RunningLaunch::RunningLaunch() {
  const std::lock_guard lock(launches().mutex);
  at_ = launches().starts.insert(std::chrono::steady_clock::now());
}
RunningLaunch::~RunningLaunch() {
  const std::lock_guard lock(launches().mutex);
  launches().starts.erase(at_);
}

double seconds_in_launch() {
  const std::lock_guard lock(launches().mutex);
  const auto& starts = launches().starts;
  return starts.empty() ? 0.0
                        : std::chrono::duration<double>(std::chrono::steady_clock::now() - *starts.begin()).count();
}

namespace {

/// Whether a tensor that is to be written holds nothing before: one that a kernel adds to holds numbers.
bool holds_poison(const TensorView& view) {
  if (view.count() == 0) return false;
  const std::uint64_t first = bits_at(view, 0);
  return first == poison(view.dtype, 0) || first == poison(view.dtype, 1);
}

GuardedTensor copy_of(const std::string& name, const GuardedTensor& tensor, LaunchCopies* copies) {
  const auto known = copies == nullptr ? std::map<std::string, LaunchCopies::Copy>::iterator() : copies->of.find(name);
  if (copies == nullptr || known == copies->of.end()) return tensor.clone();
  const LaunchCopies::Copy kept = std::move(known->second);
  copies->of.erase(known);
  return kept.from.view().data == tensor.view().data ? kept.copy : tensor.clone();
}

}  // namespace

LaunchResult launch(const kernels::KernelFn& kernel, const LaunchTensors& tensors, const Attributes& attributes,
                    Device device, const std::atomic<bool>* cancel, LaunchCopies* copies) {
  LaunchResult out;
  std::map<std::string, GuardedTensor> read;
  for (const auto& [name, tensor] : tensors.read) read[name] = copy_of(name, tensor, copies);
  for (const auto& [name, tensor] : tensors.write)
    if (!tensors.in_place.contains(name)) out.written[name] = tensor.clone();

  kernels::KernelCall call;
  call.attributes = &attributes;
  call.device = device;
  call.cancel = cancel;
  std::vector<GuardedTensor*> all;
  std::set<std::string> unwritten;
  for (auto& [name, tensor] : read) {
    call.tensors.emplace_back(name, tensor.view());
    all.push_back(&tensor);
  }
  for (auto& [name, tensor] : out.written) {
    call.tensors.emplace_back(name, tensor.view());
    all.push_back(&tensor);
    if (holds_poison(tensor.view())) unwritten.insert(name);
  }
  for (const auto& [name, from] : tensors.in_place) call.tensors.emplace_back(name, read.at(from).view());
  take_launch_notes();  // what a launch left that threw
  {
    const RunningLaunch running;
    try {
      run_on(device, kernel, call, all, unwritten);
    } catch (const std::bad_alloc&) {  // of a library a finding
      throw KernelWithoutMemory("[kernel] it threw std::bad_alloc: there is not as much memory as it asked for");
    }
  }

  out.notes = take_launch_notes();
  const auto look_around = [&out](const std::string& name, const GuardedTensor& after, const GuardedTensor& before) {
    if (after.changed_outside(before) == 0) return;
    out.overrun.push_back(name);
    out.overrun_where[name] = after.where_outside(before);
  };
  for (const auto& [name, tensor] : out.written) look_around(name, tensor, tensors.write.at(name));
  for (const auto& [name, tensor] : read) {
    const bool overwritten =
        std::any_of(tensors.in_place.begin(), tensors.in_place.end(),
                    [&, input = std::string_view(name)](const auto& p) { return p.second == input; });
    const GuardedTensor& before = tensors.read.at(name);
    if (overwritten)
      look_around(name, tensor, before);
    else if (!tensor.same_bytes(before))
      out.clobbered.push_back(name);
    else if (copies != nullptr)
      copies->of[name] = {before, tensor};
  }
  for (const auto& [name, from] : tensors.in_place) out.written[name] = read.at(from).clone();
  return out;
}

}  // namespace ampcheck::checks
