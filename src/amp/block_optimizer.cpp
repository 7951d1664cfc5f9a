// SPDX-License-Identifier: Apache-2.0
// What all optimizers share: state, the walk by blocks, the scale, skipping, counting.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>

#include "src/amp/blocks.h"
#include "src/amp/error.h"
#include "src/amp/optimizers.h"
#include "src/parallel.h"

namespace ampcheck {

namespace {

constexpr std::int64_t kGrain = 1 << 15;  // elements
constexpr int kMaxMoments = 3;
constexpr int kStep =
    kBlock / 4;  // elements at a time: what they fetch from a block ahead comes while they are updated

bool is_low(Dtype dtype) { return dtype == Dtype::fp16 || dtype == Dtype::bf16; }

/// Copies, and fetches what lies a block further: the processor's own looking ahead ends where a page does. Behind the
/// end of memory nothing is fetched, which harms nothing.
template <class T>
void copy_and_fetch(const T* from, std::int64_t n, T* to) {
  constexpr std::int64_t kLine = 64 / sizeof(T);
  std::int64_t i = 0;
  for (; i + kLine <= n; i += kLine) {
    __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(from + i) + kBlock * sizeof(T)));
    std::memcpy(to + i, from + i, kLine * sizeof(T));
  }
  std::copy_n(from + i, n - i, to + i);
}

/// Fetches elements [at, end), at most a step of them.
void fetch_block(const TensorView& view, std::int64_t at, std::int64_t end) {
  const std::int64_t size = std::min<std::int64_t>(kStep, end - at) * bytes(view.dtype);
  const char* const from = reinterpret_cast<const char*>(element_at(view, 0)) + at * bytes(view.dtype);
  for (std::int64_t i = 0; i < size; i += 64) __builtin_prefetch(from + i);
}

}  // namespace

void UpdateCounts::add(const UpdateCounts& from) {
  intended += from.intended;
  stagnant += from.stagnant;
  copy_stagnant += from.copy_stagnant;
  with_grad += from.with_grad;
  with_grad_stagnant += from.with_grad_stagnant;
  second_moment_zero += from.second_moment_zero;
  epsilon_zero += from.epsilon_zero;
  non_finite += from.non_finite;
}

/// The tensors of one parameter's update.
struct BlockOptimizer::Walk {
  TensorView target;  ///< what moves: the parameter, or its master
  TensorView copy;    ///< with master weights: the parameter
  TensorView grad;
  std::array<TensorView, kMaxMoments> moments;
  int moment_count = 0;
  std::int64_t whole = 0;  ///< elements in whole vectors
  bool has_copy = false;
  std::optional<float> grad_scale;
  const FloatFormat* rounds_to = nullptr;
  bool epsilon_is_zero = false;
};

BlockOptimizer::BlockOptimizer(std::vector<Parameter*> parameters, double lr, const UpdateOptions& common)
    : Optimizer(std::move(parameters), lr), common_(common), by_parameter_(parameters_.size()) {
  if (!common_.fused && (common_.master_weights || common_.moments || common_.second_moment))
    throw Error("[optimizer] master_weights and moments, got the reference arithmetic, want fused");
  for (const Parameter* parameter : parameters_)
    if (!parameter->value.defined() || !is_computed(parameter->value.dtype()))
      throw Error("[optimizer] parameter '" + parameter->name + "', got " +
                  (parameter->value.defined() ? name(parameter->value.dtype()) : "no value") +
                  ", want fp32, fp64, fp16 or bf16");
}

bool BlockOptimizer::skipped() const {
  if (!common_.fused || !found_inf) return false;
  return common_.skip == SkipRule::nonzero ? *found_inf != 0.0f : *found_inf == 1.0f;
}

/// Makes the state of parameter i if there is none; whether there was none.
bool BlockOptimizer::prepare_state(std::size_t i) {
  OptimizerState& held = state(i);
  const Parameter& parameter = *parameters_[i];
  const Shape& shape = parameter.value.shape();
  const std::vector<std::string> names = moment_names();
  const bool first = !names.empty() && !held.contains(names[0]);
  if (counts_steps() && !held.contains("step")) held["step"] = Tensor(Dtype::fp32, {});
  const Dtype moments = common_.moments.value_or(common_.master_weights ? Dtype::fp32 : parameter.value.dtype());
  for (std::size_t k = 0; k < names.size(); ++k) {
    const std::string& moment = names[k];
    if (held.contains(moment)) continue;
    const bool second = static_cast<int>(k) == second_moment();
    Tensor& made = held[moment] = Tensor(second ? common_.second_moment.value_or(moments) : moments, shape);
    if (initial_moment() != 0.0)
      from_doubles(std::vector<double>(static_cast<std::size_t>(shape.count()), initial_moment()), made.view());
  }
  if (common_.master_weights && !held.contains("master_param")) {
    Tensor& master = held["master_param"] = Tensor(Dtype::fp32, shape);
    for (std::int64_t at = 0; at < shape.count(); at += kBlock)
      load_block(parameter.value.view(), at, std::min<std::int64_t>(kBlock, shape.count() - at),
                 master.span<float>().data() + at);
  }
  return first;
}

/// What a block needs beside the tensors that can be updated where they lie.
template <class T>
struct BlockOptimizer::Buffers {
  alignas(64) std::array<T, kBlock> parameter, grad, old, copy_before;
  alignas(64) std::array<std::array<T, kBlock>, kMaxMoments> moments;
  std::array<std::int32_t, kBlock> had_grad;
};

template <class T>
UpdateBlock<T> BlockOptimizer::load(const Walk& w, std::int64_t at, std::int64_t n, Buffers<T>& buffers) const {
  UpdateBlock<T> block;
  block.n = n;
  block.whole = std::clamp<std::int64_t>(w.whole - at, 0, n);
  block.rounds_to = w.rounds_to;
  block.grad = buffers.grad.data();
  if (lies_as<T>(w.grad))
    copy_and_fetch(reinterpret_cast<const T*>(element_at(w.grad, at)), n, block.grad);
  else
    load_block(w.grad, at, n, block.grad);
  if (w.grad_scale) {
    const T scale = *w.grad_scale;
    for (std::int64_t i = 0; i < n; ++i) block.grad[i] /= scale;
    store_block(w.grad, at, n, block.grad);
  }
  const auto place = [&](const TensorView& tensor, T* buffer) {
    T* values = block_in_place(tensor, at, buffer);
    if (values == buffer) load_block(tensor, at, n, buffer);
    return values;
  };
  block.parameter = place(w.target, buffers.parameter.data());
  for (int m = 0; m < w.moment_count; ++m) {
    const auto k = static_cast<std::size_t>(m);
    block.moment[m] = place(w.moments[k], buffers.moments[k].data());
  }
  return block;
}

/// Writes back what was not updated in place; with `reload` the buffers then hold what was stored.
template <class T>
void BlockOptimizer::store(const Walk& w, std::int64_t at, const UpdateBlock<T>& block, Buffers<T>& buffers,
                           bool reload) const {
  const auto put = [&](const TensorView& tensor, T* values, const T* buffer) {
    if (values != buffer) return;
    store_block(tensor, at, block.n, values);
    if (reload) load_block(tensor, at, block.n, values);
  };
  put(w.target, block.parameter, buffers.parameter.data());
  for (int m = 0; m < w.moment_count; ++m) {
    const auto k = static_cast<std::size_t>(m);
    put(w.moments[k], block.moment[m], buffers.moments[k].data());
  }
  if (w.has_copy) store_block(w.copy, at, block.n, block.parameter);
}

template <class T>
void BlockOptimizer::count_update(const Walk& w, std::int64_t at, const UpdateBlock<T>& block,
                                  const Buffers<T>& buffers, UpdateCounts& counts) const {
  const int v = second_moment();
  std::array<T, kBlock> copy_after;
  if (w.has_copy) load_block(w.copy, at, block.n, copy_after.data());
  // The gradient is the direction by now. What all have is counted in one loop, which vectorises.
  const T *direction = block.grad, *now = block.parameter, *old = buffers.old.data();
  const std::int32_t* const had = buffers.had_grad.data();
  int with_grad = 0, with_grad_stagnant = 0, intended = 0, stagnant = 0, copy_stagnant = 0, second_moment_zero = 0;
  for (std::int64_t i = 0; i < block.n; ++i) {
    const std::int32_t same = now[i] == old[i] ? 1 : 0, moves = direction[i] != T(0) ? 1 : 0;
    with_grad += had[i];
    with_grad_stagnant += had[i] & same;
    intended += moves;
    stagnant += moves & same;
  }
  counts.with_grad += with_grad;
  counts.with_grad_stagnant += with_grad_stagnant;
  for (std::int64_t i = 0; w.has_copy && i < block.n; ++i) {
    const auto k = static_cast<std::size_t>(i);
    copy_stagnant += (direction[i] != T(0) ? 1 : 0) & (copy_after[k] == buffers.copy_before[k] ? 1 : 0);
  }
  for (std::int64_t i = 0; v >= 0 && i < block.n; ++i)
    second_moment_zero += had[i] & (block.moment[v][i] == T(0) ? 1 : 0);
  counts.intended += intended;
  counts.stagnant += stagnant;
  counts.copy_stagnant += copy_stagnant;
  counts.second_moment_zero += second_moment_zero;
  if (w.epsilon_is_zero) counts.epsilon_zero += block.n;
}

template <class T>
void BlockOptimizer::walk(const Walk& w, std::int64_t begin, std::int64_t end, UpdateCounts& counts) const {
  Buffers<T> buffers;
  for (std::int64_t at = begin; at < end; at += kStep) {
    const UpdateBlock<T> block = load(w, at, std::min<std::int64_t>(kStep, end - at), buffers);
    const std::int64_t next = std::min(end, at + kBlock);
    if (!lies_as<T>(w.grad)) fetch_block(w.grad, next, end);
    if (!common_.count || !lies_as<T>(w.target)) fetch_block(w.target, next, end);
    if (common_.count) {
      copy_and_fetch(block.parameter, block.n, buffers.old.data());
      if (w.has_copy) load_block(w.copy, at, block.n, buffers.copy_before.data());
      int non_finite = 0;
      for (std::int64_t i = 0; i < block.n; ++i) {
        buffers.had_grad[static_cast<std::size_t>(i)] = block.grad[i] != T(0) ? 1 : 0;
        non_finite += std::fabs(block.grad[i]) <= std::numeric_limits<T>::max() ? 0 : 1;
      }
      counts.non_finite += non_finite;
    }
    update_block(block);
    store(w, at, block, buffers, common_.count);
    if (common_.count) count_update(w, at, block, buffers, counts);
  }
}

BlockOptimizer::Walk BlockOptimizer::tensors_of(std::size_t i) {
  Parameter& parameter = *parameters_[i];
  OptimizerState& held = state(i);
  Walk w;
  w.target = common_.master_weights ? held["master_param"].view() : parameter.value.view();
  w.copy = parameter.value.view();
  w.has_copy = common_.master_weights;
  w.grad = parameter.grad.view();
  const std::int64_t count = w.target.count();
  w.whole = common_.by_place ? in_whole_vectors(w.target.dtype, count, common_.fused) : count;
  for (const std::string& moment : moment_names())
    w.moments[static_cast<std::size_t>(w.moment_count++)] = held[moment].view();
  if (common_.fused) w.grad_scale = grad_scale;
  const Dtype dtype = parameter.value.dtype();
  if (!common_.fused && is_low(dtype)) w.rounds_to = &format(dtype);
  w.epsilon_is_zero = w.rounds_to != nullptr && std::fabs(epsilon()) <= w.rounds_to->min_subnormal() / 2;
  return w;
}

/// Whether a device may have all of this step's update: no fp64, nothing sparse, no result rounded below fp32 on its
/// way.
bool BlockOptimizer::updates_at_once() const {
  if (!multi_tensor_ || !rule() || common_.moments == Dtype::fp64 || common_.second_moment == Dtype::fp64) return false;
  const auto no = [&](const Parameter* p) {
    return p->sparse_rows || p->value.dtype() == Dtype::fp64 || (p->grad.defined() && p->grad.dtype() == Dtype::fp64) ||
           (!common_.fused && is_low(p->value.dtype()));
  };
  return std::none_of(parameters_.begin(), parameters_.end(), no);
}

TensorUpdate BlockOptimizer::update_of(std::size_t i, bool first) {
  const Walk w = tensors_of(i);
  begin_parameter(counts_steps() ? static_cast<double>(*state(i)["step"].span<float>().data()) : 0.0, first);
  TensorUpdate out;
  out.target = w.target;
  out.grad = w.grad;
  out.moments = w.moments;
  out.whole = w.whole;
  if (w.has_copy) out.copy = w.copy;
  fill(out);
  return out;
}

void BlockOptimizer::run_at_once(std::span<const TensorUpdate> updates, std::span<const std::size_t> numbers) {
  UpdateRule all = *rule();
  all.fused = common_.fused;
  all.count = common_.count;
  all.lr = lr();
  if (common_.fused) all.grad_scale = grad_scale;
  std::vector<UpdateCounts> counts(updates.size());
  multi_tensor_(updates, all, counts);
  for (std::size_t k = 0; k < numbers.size(); ++k) {
    counts_.add(counts[k]);
    by_parameter_[numbers[k]].add(counts[k]);
  }
}

void BlockOptimizer::update_parameter(std::size_t i, bool first) {
  Parameter& parameter = *parameters_[i];
  begin_parameter(counts_steps() ? static_cast<double>(*state(i)["step"].span<float>().data()) : 0.0, first);
  const Walk w = tensors_of(i);
  const Dtype dtype = parameter.value.dtype();
  std::mutex mutex;
  parallel_for(parameter.value.count(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    UpdateCounts counts;
    if (dtype == Dtype::fp64)
      walk<double>(w, begin, end, counts);
    else
      walk<float>(w, begin, end, counts);
    if (!common_.count) return;
    const std::lock_guard lock(mutex);
    counts_.add(counts);
    by_parameter_[i].add(counts);
  });
}

/// parameter[row] -= lr * value for every stored value, in their order, as torch adds a sparse tensor to a dense one.
void BlockOptimizer::update_sparse(std::size_t i) {
  Parameter& parameter = *parameters_[i];
  const std::size_t rows = parameter.sparse_rows->size();
  const std::int64_t width = rows == 0 ? 0 : parameter.grad.count() / static_cast<std::int64_t>(rows);
  begin_parameter(0.0, false);
  Walk w;
  w.target = parameter.value.view();
  w.grad = parameter.grad.view();
  const Dtype dtype = parameter.value.dtype();
  if (is_low(dtype)) w.rounds_to = &format(dtype);
  for (std::size_t k = 0; k < rows; ++k) {
    Walk row = w;
    row.target.data = element_at(w.target, (*parameter.sparse_rows)[k] * width);
    row.grad.data = element_at(w.grad, static_cast<std::int64_t>(k) * width);
    if (dtype == Dtype::fp64)
      walk<double>(row, 0, width, counts_);
    else
      walk<float>(row, 0, width, counts_);
  }
}

/// Before anything moves: gradients of another shape, of rows that are not there, of whole numbers, or sparse ones that
/// this rule does not know.
void BlockOptimizer::refuse_unfit_gradients() const {
  for (const Parameter* parameter : parameters_) {
    const Tensor& grad = parameter->grad;
    if (!grad.defined()) continue;
    const std::string where = "[optimizer] gradient of '" + parameter->name + "', got ";
    if (!is_float(grad.dtype())) throw Error(where + std::string(info(grad.dtype()).name) + ", want a float dtype");
    const Shape& shape = parameter->value.shape();
    if (!parameter->sparse_rows) {
      if (grad.shape() != shape) throw Error(where + "shape " + grad.shape().str() + ", want " + shape.str());
      continue;
    }
    if (!takes_sparse())
      throw AmpError("RuntimeError",
                     "[optimizer] sparse gradient of '" + parameter->name + "', got this optimizer, want plain SGD");
    const std::int64_t rows = shape.rank > 0 ? shape[0] : 1, stored = std::ssize(*parameter->sparse_rows);
    if (rows == 0 ? grad.count() != 0 : grad.count() != stored * (shape.count() / rows))
      throw Error(where + std::to_string(grad.count()) + " numbers for " + std::to_string(stored) +
                  " rows, want rows of " + shape.str());
    for (const std::int64_t row : *parameter->sparse_rows)
      if (row < 0 || row >= rows)
        throw Error(where + "row " + std::to_string(row) + ", want 0 to " + std::to_string(rows - 1));
  }
}

bool BlockOptimizer::update() {
  const bool skip = skipped(), at_once = !skip && updates_at_once();
  if (!skip) refuse_unfit_gradients();
  std::vector<TensorUpdate> updates;
  std::vector<std::size_t> numbers;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Parameter& parameter = *parameters_[i];
    if (!parameter.grad.defined()) continue;
    if (parameter.sparse_rows) {
      if (!skip) update_sparse(i);
      continue;
    }
    if (skip && !counts_steps()) {
      // torch makes the buffers of a first step before its kernel skips it. The next step is no first one then, and
      // takes what they hold for a momentum: in torch whatever memory held, here zeros.
      if (common_.skip == SkipRule::torch_exactly_one) prepare_state(i);
      continue;
    }
    const bool first = prepare_state(i);
    // torch's wrapper counts first and takes the flag off again: with a flag of 2 the counter goes down.
    float* step = counts_steps() ? state(i)["step"].span<float>().data() : nullptr;
    if (step != nullptr) *step += 1.0f;
    if (!skip) {
      if (at_once) {
        updates.push_back(update_of(i, first));
        numbers.push_back(i);
      } else
        update_parameter(i, first);
    }
    if (step != nullptr && common_.fused && found_inf)
      *step -= common_.skip == SkipRule::nonzero ? (skip ? 1.0f : 0.0f) : *found_inf;
  }
  if (!updates.empty()) run_at_once(updates, numbers);
  return !skip;
}

}  // namespace ampcheck
