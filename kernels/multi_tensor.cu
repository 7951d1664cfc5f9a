// SPDX-License-Identifier: Apache-2.0
#include "kernels/multi_tensor.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "kernels/launch.h"
#include "kernels/signed_nan.h"
#include "src/amp/unscale.h"
#include "src/parallel.h"

namespace ampcheck::kernels {

namespace {

/// Elements that a block of threads takes at a time, of one tensor.
constexpr std::int64_t kChunk = 4096;

/// How the threads of a chunk share it: thread lane() takes elements lane(), lane() + lanes(), ...
struct HostLanes {
  std::int64_t lane() const { return 0; }
  std::int64_t lanes() const { return 1; }
  /// Adds; in no order, which an integer does not see.
  void add(std::int64_t* sum, std::int64_t more) const {
    if (more != 0) std::atomic_ref(*sum).fetch_add(more, std::memory_order_relaxed);
  }
  void raise(float* flag) const { std::atomic_ref(*flag).store(1.0f, std::memory_order_relaxed); }
};

#if AMPCHECK_CUDA_COMPILER
#pragma nv_diag_suppress 20011, 20014

struct DeviceLanes {
  __device__ std::int64_t lane() const { return threadIdx.x; }
  __device__ std::int64_t lanes() const { return blockDim.x; }
  /// Called by all threads of a warp together.
  __device__ void add(std::int64_t* sum, std::int64_t more) const {
    for (int width = kLanes / 2; width > 0; width /= 2) more += __shfl_down_sync(~0u, more, width);
    if (threadIdx.x % kLanes == 0 && more != 0)
      atomicAdd(reinterpret_cast<unsigned long long*>(sum), static_cast<unsigned long long>(more));
  }
  __device__ void raise(float* flag) const { *flag = 1.0f; }
};
#endif

/// Which tensor a chunk belongs to: the last whose first chunk is not after it.
template <class Entry>
AMPCHECK_HD std::int64_t tensor_of(const Entry* table, std::int64_t tensors, std::int64_t chunk) {
  std::int64_t low = 0, high = tensors;
  while (high - low > 1) {
    const std::int64_t middle = (low + high) / 2;
    (table[middle].first_chunk <= chunk ? low : high) = middle;
  }
  return low;
}

template <class Program, class Entry, class Lanes>
AMPCHECK_HD void run_chunk(const Program& program, const Entry* table, std::int64_t tensors, std::int64_t chunk,
                           const Lanes& lanes) {
  const Entry& entry = table[tensor_of(table, tensors, chunk)];
  const std::int64_t begin = (chunk - entry.first_chunk) * kChunk,
                     end = begin + kChunk < entry.count ? begin + kChunk : entry.count;
  program(lanes, entry, begin, end);
}

#if AMPCHECK_CUDA_COMPILER
template <class Program, class Entry>
__global__ void multi_tensor_kernel(const __grid_constant__ Program program, const Entry* table, std::int64_t tensors,
                                    std::int64_t chunks) {
  for (std::int64_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x)
    run_chunk(program, table, tensors, chunk, DeviceLanes{});
}
#endif

template <class Program, class Entry>
void run_chunks(const KernelCall& call, const Program& program, const Entry* table, std::int64_t tensors,
                std::int64_t chunks) {
  if (call.device == Device::cuda) {
#if AMPCHECK_CUDA_COMPILER
    multi_tensor_kernel<<<grid_for(chunks, 1), 256, 0, stream_of(call)>>>(program, table, tensors, chunks);
    check_cuda(cudaGetLastError(), "multi_tensor");
    return;
#else
    throw_no_cuda();
#endif
  }
  parallel_for(chunks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t chunk = begin; chunk < end; ++chunk) run_chunk(program, table, tensors, chunk, HostLanes{});
  });
}

/// One launch of `program` over all entries, which have `count` and get `first_chunk`; `touched`: the tensors, for the
/// stream to know.
template <class Program, class Entry>
void launch_at_once(Stream& stream, std::vector<Entry>& entries,
                    std::vector<std::pair<std::string, TensorView>> touched, const Program& program) {
  std::int64_t chunks = 0;
  for (Entry& entry : entries) {
    entry.first_chunk = chunks;
    chunks += (entry.count + kChunk - 1) / kChunk;
  }
  std::erase_if(entries, [](const Entry& entry) { return entry.count == 0; });
  if (entries.empty()) return;
  const MemoryScope scope(&stream);
  const auto size = entries.size() * sizeof(Entry);
  const Tensor table = Tensor::uninitialized(Dtype::u8, {static_cast<std::int64_t>(size)});
  stream.wait();
  std::memcpy(table.data(), entries.data(), size);
  touched.emplace_back("table", table.view());
  const auto* const first = static_cast<const Entry*>(table.data());
  const auto tensors = static_cast<std::int64_t>(entries.size());
  stream.launch([=](const KernelCall& call) { run_chunks(call, program, first, tensors, chunks); },
                {.tensors = std::move(touched)});
}

// Unscale and check
// ---------------------------------------------------------------------------------------------------------

struct UnscaleEntry {
  void* data;
  Dtype dtype;
  std::int64_t count, first_chunk;
};

struct Unscale {
  float inv_scale;
  float* found_inf;
  template <class Lanes>
  AMPCHECK_HD void operator()(const Lanes& lanes, const UnscaleEntry& e, std::int64_t begin, std::int64_t end) const {
    bool bad = false;
    for (std::int64_t i = begin + lanes.lane(); i < end; i += lanes.lanes()) {
      if (e.dtype == Dtype::fp64) {
        double& value = static_cast<double*>(e.data)[i];
        bad |= !(value - value == 0.0);
        if (inv_scale != 1.0f) value *= static_cast<double>(inv_scale);
        continue;
      }
      const float value = load_signed(e.data, e.dtype, i);
      bad |= (math::to_bits(value) & math::kInfinityBits) == math::kInfinityBits;
      if (inv_scale != 1.0f) store_signed(e.data, e.dtype, i, value * inv_scale);
    }
    if (bad) lanes.raise(found_inf);
  }
};

// Update
// --------------------------------------------------------------------------------------------------------------------

/// In the order of the members of UpdateCounts that a device counts.
enum Count { kIntended, kStagnant, kCopyStagnant, kWithGrad, kWithGradStagnant, kSecondMomentZero, kCounts };

struct Place {
  void* data = nullptr;
  Dtype dtype = Dtype::fp32;
  AMPCHECK_HD float load(std::int64_t i) const { return load_signed(data, dtype, i); }
  AMPCHECK_HD void store(std::int64_t i, float value) const { store_signed(data, dtype, i, value); }
};

struct UpdateEntry {
  Place target, copy, grad, moments[3];
  float step_size, correction;  ///< as the rule rounds them
  bool first;
  std::int64_t* counts;
  std::int64_t count, first_chunk;
  std::int64_t whole = 0;  ///< elements in whole vectors
};

/// An element while it is updated; g becomes the direction.
struct Element {
  float p, g, moment[3];
};

/// The scalars in fp32, and the arithmetic of src/amp/optimizers.cpp, operation by operation.
struct Update {
  bool adam, fused, maximize, decoupled, amsgrad, nesterov, has_momentum, has_decay, divides, counts;
  float lr, weight_decay, keep, momentum, fresh, lerp, beta2, square, eps, grad_scale;

  AMPCHECK_HD void sgd(Element& e, bool first, bool whole) const {
    if (has_momentum) {
      float& buffer = e.moment[0];
      if (first)
        buffer = e.g;
      else if (fused && !whole)
        buffer = math::fma(buffer, momentum, e.g * fresh);
      else
        buffer = math::fma(fresh, e.g, buffer * momentum);
      e.g = nesterov ? math::fma(momentum, buffer, e.g) : buffer;
    }
    e.p = math::fma(-lr, e.g, e.p);
  }

  AMPCHECK_HD float second(Element& e) const {
    float &v = e.moment[1], &largest = e.moment[2];
    if (!amsgrad) return v;
    if (!(largest != largest) && !(largest > v)) largest = v;
    return largest;
  }

  AMPCHECK_HD void adam_reference(Element& e, const UpdateEntry& t) const {
    float &m = e.moment[0], &v = e.moment[1];
    m = math::abs(lerp) < 0.5f ? math::fma(lerp, e.g - m, m) : math::fma(lerp - 1.0f, e.g - m, e.g);
    v = math::fma(square * e.g, e.g, v * beta2);
    const float denominator = math::divide(math::sqrt(second(e)), t.correction) + eps;
    e.p = e.p + math::divide(t.step_size * m, denominator);
    e.g = m;
  }

  AMPCHECK_HD void adam_fused(Element& e, const UpdateEntry& t, bool whole) const {
    float &m = e.moment[0], &v = e.moment[1];
    const bool near_old = lerp < 0.5f;
    const float weight = near_old ? lerp : lerp - 1.0f, from = near_old ? m : e.g;
    m = math::fma(weight, e.g - m, from);
    v = whole ? math::fma(square * e.g, e.g, v * beta2) : math::fma(beta2, v, square * e.g * e.g);
    e.p = e.p + math::divide(t.step_size * m, math::divide(math::sqrt(second(e)), t.correction) + eps);
    e.g = m;
  }

  AMPCHECK_HD void update(Element& e, const UpdateEntry& t, bool whole) const {
    if (maximize) e.g = -e.g;
    if (has_decay && adam && decoupled)
      e.p = e.p * keep;
    else if (has_decay)
      e.g = math::fma(weight_decay, e.p, e.g);
    if (!adam)
      sgd(e, t.first, whole);
    else if (fused)
      adam_fused(e, t, whole);
    else
      adam_reference(e, t);
  }

  template <class Lanes>
  AMPCHECK_HD void operator()(const Lanes& lanes, const UpdateEntry& t, std::int64_t begin, std::int64_t end) const {
    std::int64_t sums[kCounts] = {};
    for (std::int64_t i = begin + lanes.lane(); i < end; i += lanes.lanes()) {
      Element e{t.target.load(i), t.grad.load(i), {}};
      if (divides) {
        e.g = math::divide(e.g, grad_scale);
        t.grad.store(i, e.g);
      }
      for (int m = 0; m < 3; ++m)
        if (t.moments[m].data != nullptr) e.moment[m] = t.moments[m].load(i);
      const float old = e.p, old_copy = counts && t.copy.data != nullptr ? t.copy.load(i) : 0.0f;
      const bool had = e.g != 0.0f;
      update(e, t, i < t.whole);
      t.target.store(i, e.p);
      for (int m = 0; m < 3; ++m)
        if (t.moments[m].data != nullptr) t.moments[m].store(i, e.moment[m]);
      if (t.copy.data != nullptr) t.copy.store(i, e.p);
      if (counts) count(t, i, old, old_copy, had, e.g != 0.0f, sums);
    }
    for (int k = 0; counts && k < kCounts; ++k) lanes.add(t.counts + k, sums[k]);
  }

  /// Of what was stored.
  AMPCHECK_HD void count(const UpdateEntry& t, std::int64_t i, float old, float old_copy, bool had, bool meant,
                         std::int64_t* sums) const {
    const bool same = t.target.load(i) == old;
    sums[kIntended] += meant;
    sums[kStagnant] += meant && same;
    sums[kWithGrad] += had;
    sums[kWithGradStagnant] += had && same;
    if (t.copy.data != nullptr) sums[kCopyStagnant] += meant && t.copy.load(i) == old_copy;
    if (adam) sums[kSecondMomentZero] += had && t.moments[1].load(i) == 0.0f;
  }
};

Place place_of(const TensorView& view) { return {view.data, view.dtype}; }

Update update_of(const UpdateRule& r) {
  using Kind = UpdateRule::Kind;
  Update u{};
  u.adam = r.kind == Kind::adam;
  u.fused = r.fused;
  u.maximize = r.maximize;
  u.decoupled = r.decoupled;
  u.amsgrad = r.amsgrad;
  u.nesterov = r.nesterov;
  u.has_momentum = r.momentum != 0.0;
  u.has_decay = r.weight_decay != 0.0;
  u.divides = r.grad_scale.has_value();
  u.counts = r.count;
  u.lr = static_cast<float>(r.lr);
  u.weight_decay = static_cast<float>(r.weight_decay);
  u.keep = static_cast<float>(1.0 - r.lr * r.weight_decay);
  u.momentum = static_cast<float>(r.momentum);
  u.fresh = static_cast<float>(1.0 - r.dampening);
  u.lerp = static_cast<float>(1.0 - r.beta1);
  u.beta2 = static_cast<float>(r.beta2);
  u.square = static_cast<float>(1.0 - r.beta2);
  u.eps = static_cast<float>(r.eps);
  u.grad_scale = r.grad_scale.value_or(1.0f);
  return u;
}

}  // namespace

void unscale_at_once(Stream& stream, std::span<const TensorView> grads, float inv_scale, float& found_inf) {
  const auto taken = [](const TensorView& g) {
    return g.is_dense() &&
           (g.dtype == Dtype::fp64 || g.dtype == Dtype::fp32 || g.dtype == Dtype::fp16 || g.dtype == Dtype::bf16);
  };
  if (!std::all_of(grads.begin(), grads.end(), taken)) {
    stream.wait();
    return check_and_unscale(grads, inv_scale, found_inf);
  }
  const MemoryScope scope(&stream);
  const Tensor found(Dtype::fp32, {1});
  std::vector<UnscaleEntry> entries;
  std::vector<std::pair<std::string, TensorView>> touched = {{"found_inf", found.view()}};
  for (const TensorView& grad : grads) {
    entries.push_back({grad.data, grad.dtype, grad.count(), 0});
    touched.emplace_back("grad", grad);
  }
  launch_at_once(stream, entries, std::move(touched), Unscale{inv_scale, found.span<float>().data()});
  stream.wait();
  if (found.span<float>()[0] != 0.0f) found_inf = 1.0f;
}

void update_at_once(Stream& stream, std::span<const TensorUpdate> tensors, const UpdateRule& rule,
                    std::span<UpdateCounts> counts) {
  const MemoryScope scope(&stream);
  const Tensor sums(Dtype::i64, {std::ssize(tensors), kCounts});
  std::vector<UpdateEntry> entries;
  std::vector<std::pair<std::string, TensorView>> touched = {{"counts", sums.view()}};
  for (const TensorUpdate& t : tensors) {
    UpdateEntry e{place_of(t.target),
                  place_of(t.copy),
                  place_of(t.grad),
                  {},
                  static_cast<float>(-t.step_size),
                  static_cast<float>(t.correction),
                  t.first,
                  nullptr,
                  t.target.count(),
                  0,
                  t.whole};
    e.counts = sums.span<std::int64_t>().data() + kCounts * std::ssize(entries);
    touched.emplace_back("target", t.target);
    touched.emplace_back("grad", t.grad);
    if (t.copy.data != nullptr) touched.emplace_back("copy", t.copy);
    for (std::size_t m = 0; m < t.moments.size(); ++m) {
      e.moments[m] = place_of(t.moments[m]);
      if (t.moments[m].data != nullptr) touched.emplace_back("moment", t.moments[m]);
    }
    entries.push_back(e);
  }
  launch_at_once(stream, entries, std::move(touched), update_of(rule));
  if (!rule.count) return;
  stream.wait();
  for (std::size_t k = 0; k < counts.size(); ++k) {
    const std::int64_t* const s = sums.span<std::int64_t>().data() + kCounts * k;
    UpdateCounts& c = counts[k];
    c.intended += s[kIntended];
    c.stagnant += s[kStagnant];
    c.copy_stagnant += s[kCopyStagnant];
    c.with_grad += s[kWithGrad];
    c.with_grad_stagnant += s[kWithGradStagnant];
    c.second_moment_zero += s[kSecondMomentZero];
  }
}

}  // namespace ampcheck::kernels
