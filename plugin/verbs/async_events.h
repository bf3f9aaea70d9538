// Async events of a device, read without blocking, acknowledged before anything is done with them
// (destroy_qp waits for unacknowledged events of its QP), and handed out as plain values.
//
// Thread contract: one reader per device context (the service thread); a second reader would steal
// events.
#pragma once

#include <cstdint>

#include "plugin/verbs/api.h"
#include "plugin/verbs/error.h"
#include "plugin/verbs/types.h"

namespace mend::verbs {

enum class EventSubject : std::uint8_t {
  Device,
  Port,
  QueuePair,
  SharedQueue,
  CompletionQueue,
  Other
};

struct AsyncEvent {
  ibv_event_type type = IBV_EVENT_DEVICE_FATAL;
  EventSubject subject = EventSubject::Device;
  std::uint8_t port = 0;         // subject Port: 1-based
  Qpn qpn;                       // subject QueuePair
  const ibv_srq* srq = nullptr;  // subject SharedQueue: an identity to compare, not to dereference
  const ibv_cq* cq = nullptr;    // subject CompletionQueue: likewise
};

// What the union of an ibv_async_event holds for this type.
EventSubject event_subject(ibv_event_type type);
const char* event_name(ibv_event_type type);

// Makes context->async_fd non-blocking; once per context, before the first read.
Result<void> prepare_async_events(ibv_context* context);

// Takes one event. False: none is waiting (or the read failed, which the next device call will
// show).
bool next_async_event(const Api& api, ibv_context* context, AsyncEvent& event);

}  // namespace mend::verbs
