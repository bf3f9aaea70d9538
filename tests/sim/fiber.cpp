#include "tests/sim/fiber.h"

#include <utility>

namespace mend::sim {
namespace {

Fiber* running = nullptr;

}  // namespace

Fiber::Fiber(std::function<void()> body) : body_(std::move(body)), stack_(new std::byte[kStack]) {
  getcontext(&inside_);
  inside_.uc_stack.ss_sp = stack_.get();
  inside_.uc_stack.ss_size = kStack;
  inside_.uc_link = nullptr;
  makecontext(&inside_, &Fiber::enter, 0);
}

void Fiber::enter() {
  Fiber* self = running;
  self->body_();
  self->finished_ = true;
  yield();
}

bool Fiber::resume() {
  if (finished_) return false;
  Fiber* const resumed_by = std::exchange(running, this);
  swapcontext(&outside_, &inside_);
  running = resumed_by;
  return !finished_;
}

Fiber* Fiber::current() { return running; }

void Fiber::yield(std::uint64_t wake_at) {
  Fiber* self = running;
  self->wake_at_ = wake_at;
  swapcontext(&self->inside_, &self->outside_);
}

}  // namespace mend::sim
