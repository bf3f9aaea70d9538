// Channel: the end of a connection that was given up. What was accepted and is not done is called
// back as failed, at once or as soon as the device is known to read and write nothing of it any
// more; what is submitted later fails the same way.
#include <mutex>

#include "ops/channel.h"
#include "ops/frag_pool.h"
#include "ops/poller.h"

namespace mend::ops {

void Channel::abandon() {
  const std::lock_guard guard(lock_);
  abandoned_ = true;
  fail_if_abandoned();
}

// With a lane attached, the fence's detach() calls this again.
void Channel::fail_if_abandoned() {
  if (!abandoned_ || unfenced_ || state_.load(std::memory_order_relaxed) != LaneState::None) {
    return;
  }
  for (std::uint64_t i = log_.done(); i != log_.end(); ++i) {
    LogEntry& entry = log_.at(i);
    if (entry.kind == LogKind::Send) {
      fail_send(entry);
    } else {
      fail_piece(entry);
    }
  }
  log_.set_done(log_.end());
  log_.set_posted(log_.end());
  log_.set_retired(log_.end());
  acked_ = tx_next_;
  tx_sent_ = tx_next_;
  fail_atomics();
}

// One that was posted has had its callback, before anybody could know.
void Channel::fail_send(const LogEntry& entry) {
  Frag& frag = entry.frag();
  if ((entry.flags & (kLogCallback | kLogEverPosted)) == kLogCallback) {
    frag.failed = true;
    home_.push_sent(frag);
  }
  release_peer(frag);
}

void Channel::fail_piece(LogEntry& entry) {
  special_ -= kOneRdma;
  if ((entry.flags & kLogDone) == 0) {
    entry.rdma().failed = true;
    finish_piece(entry);
  }
}

void Channel::fail_atomics() {
  const auto fail = [this](AmoCall& call) {
    call.failed = true;
    home_.push_done(call);
  };
  calls_.take_all(fail);
  while (AmoCall* call = waiting_calls_) {
    waiting_calls_ = call->next;
    fail(*call);
  }
  waiting_replies_.clear();
}

}  // namespace mend::ops
