// SPDX-License-Identifier: Apache-2.0
#include "tools/workers/kernel_arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "src/error.h"

namespace ampcheck::tools {

namespace {

constexpr std::uint64_t kPage = 4096;
constexpr off_t kSparse = off_t{1} << 46;            ///< length of the file: only what is touched takes memory
constexpr std::uint64_t kMostUnused = 256ull << 20;  ///< that is kept for later tensors

/// Small blocks fit to the page; of large ones there are eight sizes between a power of two and the next.
std::uint64_t block_size(std::size_t bytes) {
  const std::uint64_t pages = (std::max<std::uint64_t>(bytes, 1) + kPage - 1) / kPage;
  if (pages <= 64) return pages * kPage;
  const std::uint64_t step = std::bit_floor(pages - 1) / 8;
  return (pages + step - 1) / step * step * kPage;
}

}  // namespace

KernelArena::KernelArena() : file_(memfd_create("tensors", MFD_CLOEXEC)) {
  if (file_ < 0 || ftruncate(file_, kSparse) != 0)
    throw EnvironmentError(std::string("[worker] no memory to share with the kernels: ") + std::strerror(errno));
}

KernelArena::~KernelArena() { close(file_); }

std::size_t KernelArena::whole(std::size_t bytes) const { return block_size(bytes); }

std::shared_ptr<std::byte> KernelArena::allocate(std::size_t bytes) {
  // Where there is no memory for its count, the block is given back at once: nothing may be locked here.
  return {take(block_size(bytes)), [this](std::byte* at) { give_back(at); }};
}

std::byte* KernelArena::take(std::uint64_t size) {
  const std::lock_guard lock(mutex_);
  if (const auto known = unused_.find(size); known != unused_.end()) {
    std::byte* const begin = known->second;
    blocks_.at(begin).entry = unused_.extract(known);
    unused_bytes_ -= size;
    return begin;
  }
  if (const std::size_t most = gone_.size() + blocks_.size() + 1; gone_.capacity() < most) gone_.reserve(2 * most);
  Unused made;
  made.emplace(size, nullptr);
  void* const mapped =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_, static_cast<off_t>(next_));
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  auto* const begin = static_cast<std::byte*>(mapped);
  made.begin()->second = begin;
  try {
    blocks_.try_emplace(begin, Block{{next_, size}, made.extract(made.begin())});
  } catch (const std::bad_alloc&) {
    munmap(begin, size);
    throw;
  }
  next_ += size;
  return begin;
}

void KernelArena::give_back(std::byte* begin) noexcept {
  const std::lock_guard lock(mutex_);
  const auto block = blocks_.find(begin);
  const ArenaBlock at = block->second.at;
  if (unused_bytes_ + at.bytes <= kMostUnused) {
    unused_.insert(std::move(block->second.entry));
    unused_bytes_ += at.bytes;
    return;
  }
  munmap(begin, at.bytes);
  fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(at.offset),
            static_cast<off_t>(at.bytes));
  blocks_.erase(block);
  gone_.push_back(at.offset);
}

std::optional<KernelArena::Place> KernelArena::find(const void* address) const {
  const auto* const at = static_cast<const std::byte*>(address);
  const std::lock_guard lock(mutex_);
  auto next = blocks_.upper_bound(const_cast<std::byte*>(at));
  if (next == blocks_.begin()) return std::nullopt;
  --next;
  if (at >= next->first + next->second.at.bytes) return std::nullopt;
  return Place{next->second.at, next->first};
}

std::vector<std::uint64_t> KernelArena::take_gone() {
  const std::lock_guard lock(mutex_);
  std::vector<std::uint64_t> out = gone_;
  gone_.clear();  // its room stays
  return out;
}

std::byte* MappedArena::map(const ArenaBlock& block) {
  if (const auto known = mapped_.find(block.offset); known != mapped_.end()) return known->second.begin;
  void* const zone =
      mmap(nullptr, block.bytes + 2 * kZone, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (zone == MAP_FAILED) throw std::bad_alloc();
  std::byte* const begin = static_cast<std::byte*>(zone) + kZone;
  if (mmap(begin, block.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file_,
           static_cast<off_t>(block.offset)) == MAP_FAILED) {
    munmap(zone, block.bytes + 2 * kZone);
    throw std::bad_alloc();
  }
  mapped_[block.offset] = {begin, block.bytes};
  return begin;
}

void MappedArena::forget(std::uint64_t offset) {
  const auto known = mapped_.find(offset);
  if (known == mapped_.end()) return;
  munmap(known->second.begin - kZone, known->second.bytes + 2 * kZone);
  mapped_.erase(known);
}

}  // namespace ampcheck::tools
