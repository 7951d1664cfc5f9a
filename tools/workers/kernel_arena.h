// SPDX-License-Identifier: Apache-2.0
// Memory that the judge of a case shares with the process in which kernels run: tensors with their guards, and nothing
// else of the judge.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "checks/case/kernel_memory.h"

namespace ampcheck::tools {

/// A piece of the shared memory: where it begins in its file, and its bytes, a whole number of pages.
struct ArenaBlock {
  std::uint64_t offset = 0, bytes = 0;
};

class KernelArena : public checks::KernelMemory {
 public:
  /// EnvironmentError if there is no such memory.
  KernelArena();
  KernelArena(const KernelArena&) = delete;
  KernelArena& operator=(const KernelArena&) = delete;
  ~KernelArena() override;

  /// Descriptor of the memory, for the other process; closed where it is not handed on.
  int file() const { return file_; }

  std::shared_ptr<std::byte> allocate(std::size_t bytes) override;
  void wait() override {}
  std::size_t whole(std::size_t bytes) const override;

  /// The block around an address, and where it begins here; nothing for other memory.
  struct Place {
    ArenaBlock block;
    std::byte* begin = nullptr;
  };
  std::optional<Place> find(const void* address) const;
  /// Offsets of blocks that are gone for good since the last call.
  std::vector<std::uint64_t> take_gone();

 private:
  using Unused = std::multimap<std::uint64_t, std::byte*>;  ///< by size
  struct Block {
    ArenaBlock at;
    Unused::node_type entry;  ///< of unused_, while it is in use: to give it back takes no memory
  };

  std::byte* take(std::uint64_t size);
  void give_back(std::byte* begin) noexcept;

  int file_ = -1;
  mutable std::mutex mutex_;
  std::uint64_t next_ = 0;              ///< end of what was ever in use
  std::map<std::byte*, Block> blocks_;  ///< by where they begin, in use or not
  Unused unused_;
  std::uint64_t unused_bytes_ = 0;
  std::vector<std::uint64_t> gone_;  ///< with room for all blocks
};

/// The same blocks in the process of the kernels, each between pages that nobody may touch.
class MappedArena {
 public:
  explicit MappedArena(int file) : file_(file) {}
  /// Where the block begins here. std::bad_alloc if there is no room.
  std::byte* map(const ArenaBlock& block);
  void forget(std::uint64_t offset);

  /// How far outside of a block the pages reach that nobody may touch.
  static constexpr std::uint64_t kZone = 1 << 20;

 private:
  struct Mapped {
    std::byte* begin = nullptr;
    std::uint64_t bytes = 0;
  };
  int file_;
  std::map<std::uint64_t, Mapped> mapped_;  ///< by offset
};

}  // namespace ampcheck::tools
