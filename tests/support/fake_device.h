// SPDX-License-Identifier: Apache-2.0
// A device without a GPU: what is launched runs only when somebody waits, and from the launch until then its memory can
// neither be read nor written by the host: a touch ends in SIGSEGV, as would a race on a real device in wrong numbers.
#pragma once

#include <sys/mman.h>

#include <deque>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "kernels/stream.h"

namespace ampcheck::tests {

class FakeStream final : public kernels::Stream {
 public:
  FakeStream() : FakeStream(std::make_shared<Pages>()) {}

 private:
  struct Page {
    void* data;
    std::size_t bytes;
  };
  struct Pages {
    std::vector<Page> all;
    bool closed = false;
    void close(bool on) {
      if (closed == on) return;
      closed = on;
      for (const Page& page : all) mprotect(page.data, page.bytes, on ? PROT_NONE : PROT_READ | PROT_WRITE);
    }
    std::shared_ptr<void> make(std::size_t bytes) {
      void* const data =
          mmap(nullptr, bytes, closed ? PROT_NONE : PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (data == MAP_FAILED) throw std::bad_alloc();
      all.push_back({data, bytes});
      return {data, [bytes](void* p) { munmap(p, bytes); }};
    }
  };
  struct Launch {
    kernels::KernelFn kernel;
    kernels::KernelCall call;
    Attributes attributes;
  };

  explicit FakeStream(std::shared_ptr<Pages> pages)
      : Stream([pages](std::size_t bytes) { return pages->make(bytes); }), pages_(std::move(pages)) {}
  void enqueue(const kernels::KernelFn& kernel, const kernels::KernelCall& call) override {
    pages_->close(true);
    Launch& kept =
        queue_.emplace_back(Launch{kernel, call, call.attributes != nullptr ? *call.attributes : Attributes()});
    if (call.attributes != nullptr) kept.call.attributes = &kept.attributes;
  }
  void finish() override {
    pages_->close(false);
    for (; !queue_.empty(); queue_.pop_front()) queue_.front().kernel(queue_.front().call);
  }

  std::shared_ptr<Pages> pages_;
  std::deque<Launch> queue_;
};

}  // namespace ampcheck::tests
