// Channel: atomics as sequenced active messages. The target's CPU executes them in sequence order;
// the reply is a SEND of its own, so both directions are exactly once by the same rule as all SENDs
// (A1).
#include <algorithm>
#include <cstring>
#include <mutex>

#include "ops/amo_execute.h"
#include "ops/channel.h"
#include "ops/frag_pool.h"
#include "ops/poller.h"

namespace mend::ops {
namespace {

constexpr std::uint32_t kStatusExecuted = 0;
constexpr std::uint32_t kStatusRefused = 1;

}  // namespace

void Channel::atomic(AmoCall& call) {
  if (submit_call(call)) [[likely]] {
    if (events_pending()) [[unlikely]] {
      run_events();
    }
    return;
  }
  const std::lock_guard guard(lock_);
  call.next = waiting_calls_;
  waiting_calls_ = &call;
  need_attention();
  fail_if_abandoned();
}

bool Channel::submit_call(AmoCall& call) {
  Frag* frag = config_.frags->get();
  if (frag == nullptr) [[unlikely]] {
    return false;
  }
  const AmoRequest body{.address = call.remote,
                        .operand = call.operand,
                        .compare = call.compare,
                        .rkey = call.rkey.value,
                        .op = static_cast<std::uint8_t>(call.op),
                        .width = call.width,
                        .pad = {}};
  std::memcpy(frag->payload(), &body, sizeof(body));
  frag->length = sizeof(body);
  const std::lock_guard guard(lock_);
  call.id = calls_.add(call);
  ++stats_.atomics;
  submit_locked(*frag, Kind::AmoReq, 0, call.id, false, 0);
  return true;
}

void Channel::run_atomic(const DataHeader& header, std::uint32_t payload_bytes,
                         const std::byte* payload) {
  AmoRequest request{};
  std::memcpy(&request, payload, std::min<std::size_t>(payload_bytes, sizeof(request)));
  Reply reply{.id = header.aux, .body = {.value = 0, .status = kStatusRefused, .pad = 0}};
  const bool legal =
      payload_bytes == sizeof(request) &&
      amo_is_valid(request.op, request.width, request.address) &&
      (events_.may_access == nullptr ||
       events_.may_access(events_.context, request.address, request.width, Rkey{request.rkey}));
  if (legal) [[likely]] {
    reply.body.value =
        execute_amo(static_cast<AmoOp>(request.op), request.width,
                    reinterpret_cast<void*>(request.address), request.operand, request.compare);
    reply.body.status = kStatusExecuted;
  } else {
    const std::lock_guard guard(lock_);
    note_fault(Fault::BadAtomic, request.address);
  }
  if (!submit_reply(reply)) [[unlikely]] {
    const std::lock_guard guard(lock_);
    waiting_replies_.push_back(reply);
    need_attention();
  }
}

bool Channel::submit_reply(const Reply& reply) {
  Frag* frag = config_.frags->get();
  if (frag == nullptr) [[unlikely]] {
    return false;
  }
  std::memcpy(frag->payload(), &reply.body, sizeof(reply.body));
  frag->length = sizeof(reply.body);
  const std::lock_guard guard(lock_);
  submit_locked(*frag, Kind::AmoRsp, 0, reply.id, false, 0);
  return true;  // events are run by the Poller: we are inside its critical section
}

void Channel::finish_atomic(const DataHeader& header, std::uint32_t payload_bytes,
                            const std::byte* payload) {
  AmoResponse response{};
  std::memcpy(&response, payload, std::min<std::size_t>(payload_bytes, sizeof(response)));
  const std::lock_guard guard(lock_);
  AmoCall* call = calls_.find(header.aux);
  if (payload_bytes != sizeof(response) || call == nullptr) {
    note_fault(Fault::UnknownReply, header.aux);
    return;
  }
  if (response.status != kStatusExecuted) {
    note_fault(Fault::AtomicRefused, call->remote);  // never completed: the connection gives up
    return;
  }
  calls_.take(header.aux);
  call->result = response.value;
  home_.push_done(*call);
}

// Memory ran out earlier; submission order among waiting atomics is kept.
void Channel::retry_waiting() {
  lock_.lock();
  std::vector<Reply> replies = std::move(waiting_replies_);
  waiting_replies_.clear();
  AmoCall* newest = waiting_calls_;
  waiting_calls_ = nullptr;
  lock_.unlock();

  std::size_t sent = 0;
  while (sent < replies.size() && submit_reply(replies[sent])) {
    ++sent;
  }
  AmoCall* oldest = nullptr;  // the list, reversed
  while (newest != nullptr) {
    AmoCall* next = newest->next;
    newest->next = oldest;
    oldest = newest;
    newest = next;
  }
  while (oldest != nullptr) {
    AmoCall* next = oldest->next;
    if (!submit_call(*oldest)) {
      break;
    }
    oldest = next;
  }
  const std::lock_guard guard(lock_);
  waiting_replies_.insert(waiting_replies_.begin(),
                          replies.begin() + static_cast<std::ptrdiff_t>(sent), replies.end());
  while (oldest != nullptr) {  // back, newest first again
    AmoCall* next = oldest->next;
    oldest->next = waiting_calls_;
    waiting_calls_ = oldest;
    oldest = next;
  }
  fail_if_abandoned();
}

}  // namespace mend::ops
