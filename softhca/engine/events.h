// Asynchronous events and completion events as the application fetches them. Facts are state in
// shared memory or in the context's private queue; datagrams only make the descriptors readable.
// Thread safe.
#pragma once

#include <infiniband/verbs.h>

#include "softhca/engine/context.h"

namespace softhca {

struct Cq;
struct Qp;
struct Srq;

// Queues an event and makes async_fd readable.
void raise_event(Context& ctx, const ibv_async_event& event);
// Forgets undelivered events of an object that goes away.
void forget_events(Context& ctx, const void* element);

int get_async_event(Context& ctx, ibv_async_event* event);
void ack_async_event(const ibv_async_event& event);

Channel* create_channel(Context& ctx);
int destroy_channel(Channel* channel);
int get_cq_event(Channel& channel, ibv_cq** cq, void** user);
// Makes the descriptor readable if events wait: whoever counted one may have died before it woke
// us.
void repeat_wake_up(Channel& channel);
void ack_cq_events(Cq& cq, unsigned count);

// Looks for link changes of this context's ports.
void service_ports(Context& ctx);

}  // namespace softhca
