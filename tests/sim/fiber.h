// Fiber: a function with a stack of its own that may stop in the middle and go on later. The
// simulation runs what would be a blocking thread on one.
//
// Thread contract: one thread. Invariant: a fiber that is destroyed in the middle runs no
// destructors, so whoever owns it lets it come to a place where it holds nothing.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace mend::sim {

class Fiber {
 public:
  explicit Fiber(std::function<void()> body);
  ~Fiber() = default;
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  bool resume();  // until the body yields or returns; false: it has returned
  bool finished() const { return finished_; }
  static Fiber* current();  // null outside
  // Inside only; wake_at is for whoever resumes.
  static void yield(std::uint64_t wake_at = 0);
  std::uint64_t wake_at() const { return wake_at_; }

 private:
  static void enter();

  static constexpr std::size_t kStack = std::size_t{192} << 10;
  std::function<void()> body_;
  std::unique_ptr<std::byte[]> stack_;
  ucontext_t inside_{};
  ucontext_t outside_{};
  std::uint64_t wake_at_ = 0;
  bool finished_ = false;
};

}  // namespace mend::sim
