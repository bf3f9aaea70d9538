#include "softhca/engine/events.h"

#include <algorithm>
#include <cerrno>
#include <new>

#include "softhca/engine/cq.h"
#include "softhca/engine/qp.h"
#include "softhca/engine/recv_queue.h"

namespace softhca {

namespace {

bool concerns(const ibv_async_event& event, const void* element) noexcept {
  switch (event.event_type) {
    case IBV_EVENT_CQ_ERR:
      return event.element.cq == element;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      return event.element.srq == element;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return event.element.qp == element;
    default:
      return false;
  }
}

enum class Affects { Cq, Srq, Qp, Nothing };

Affects affected(ibv_event_type type) noexcept {
  ibv_async_event event{};
  event.event_type = type;
  int probe = 0;
  event.element.cq = reinterpret_cast<ibv_cq*>(&probe);
  if (!concerns(event, &probe)) return Affects::Nothing;
  if (type == IBV_EVENT_CQ_ERR) return Affects::Cq;
  if (type == IBV_EVENT_SRQ_ERR || type == IBV_EVENT_SRQ_LIMIT_REACHED) return Affects::Srq;
  return Affects::Qp;
}

void count_fetched(const ibv_async_event& event) {
  switch (affected(event.event_type)) {
    case Affects::Cq: {
      Cq* cq = cq_of(event.element.cq);
      pthread_mutex_lock(&cq->ex.mutex);
      ++cq->async_events_fetched;
      pthread_mutex_unlock(&cq->ex.mutex);
      break;
    }
    case Affects::Srq: {
      Srq* srq = srq_of(event.element.srq);
      pthread_mutex_lock(&srq->srq.mutex);
      ++srq->events_fetched;
      pthread_mutex_unlock(&srq->srq.mutex);
      break;
    }
    case Affects::Qp: {
      Qp* qp = qp_of(event.element.qp);
      pthread_mutex_lock(&qp->ex.qp_base.mutex);
      ++qp->events_fetched;
      pthread_mutex_unlock(&qp->ex.qp_base.mutex);
      break;
    }
    case Affects::Nothing:
      break;
  }
}

void wake_self(Process& proc, Off wake) { proc.waker().wake(*proc.segment().at<WakeAddr>(wake)); }

// Takes one counted event from a CQ of the channel; *more tells whether others wait.
Cq* take_cq_event(Channel& channel, bool* more) {
  Process& proc = *channel.ctx->proc;
  std::lock_guard guard(channel.mutex);
  Cq* found = nullptr;
  *more = false;
  if (!proc.lock(proc.self())) return nullptr;
  for (std::size_t i = 0; i < channel.cqs.size(); ++i) {
    Cq* cq = channel.cqs[i];
    const uint32_t pending = cq->sh->pending.load();
    if (pending == 0) continue;
    if (found != nullptr) {
      *more = true;
      break;
    }
    found = cq;
    cq->sh->pending.store(pending - 1);
    if (pending > 1) *more = true;
  }
  proc.unlock(proc.self());
  if (found != nullptr) {
    // Others get their turn first next time.
    auto at = std::find(channel.cqs.begin(), channel.cqs.end(), found);
    std::rotate(at, at + 1, channel.cqs.end());
    pthread_mutex_lock(&found->ex.mutex);
    ++found->comp_events_fetched;
    pthread_mutex_unlock(&found->ex.mutex);
  }
  return found;
}

bool any_pending(Channel& channel) {
  std::lock_guard guard(channel.mutex);
  return std::any_of(channel.cqs.begin(), channel.cqs.end(),
                     [](const Cq* cq) { return cq->sh->pending.load() != 0; });
}

}  // namespace

void raise_event(Context& ctx, const ibv_async_event& event) {
  {
    std::lock_guard guard(ctx.events_mutex);
    ctx.events.push_back(event);
  }
  wake_self(*ctx.proc, ctx.wake);
}

void forget_events(Context& ctx, const void* element) {
  std::lock_guard guard(ctx.events_mutex);
  auto& all = ctx.events;
  all.erase(std::remove_if(all.begin(), all.end(),
                           [&](const ibv_async_event& e) { return concerns(e, element); }),
            all.end());
}

int get_async_event(Context& ctx, ibv_async_event* event) {
  for (;;) {
    if (ctx.proc->inert()) {
      errno = EIO;
      return -1;
    }
    ctx.proc->service();
    bool found = false;
    bool more = false;
    {
      std::lock_guard guard(ctx.events_mutex);
      if (!ctx.events.empty()) {
        *event = ctx.events.front();
        ctx.events.pop_front();
        found = true;
        more = !ctx.events.empty();
        // Counted before anybody can destroy the object.
        count_fetched(*event);
      }
    }
    if (found) {
      if (!more) {
        // What is drained here may have announced something that came after the look above.
        ctx.async.drain();
        ctx.proc->service();
        std::lock_guard guard(ctx.events_mutex);
        if (!ctx.events.empty()) wake_self(*ctx.proc, ctx.wake);
      }
      return 0;
    }
    const int rc = ctx.async.wait_one();
    if (rc != 0) {
      errno = rc;
      return -1;
    }
  }
}

void ack_async_event(const ibv_async_event& event) {
  switch (affected(event.event_type)) {
    case Affects::Cq: {
      ibv_cq* cq = event.element.cq;
      pthread_mutex_lock(&cq->mutex);
      ++cq->async_events_completed;
      pthread_cond_broadcast(&cq->cond);
      pthread_mutex_unlock(&cq->mutex);
      break;
    }
    case Affects::Srq: {
      ibv_srq* srq = event.element.srq;
      pthread_mutex_lock(&srq->mutex);
      ++srq->events_completed;
      pthread_cond_broadcast(&srq->cond);
      pthread_mutex_unlock(&srq->mutex);
      break;
    }
    case Affects::Qp: {
      ibv_qp* qp = event.element.qp;
      pthread_mutex_lock(&qp->mutex);
      ++qp->events_completed;
      pthread_cond_broadcast(&qp->cond);
      pthread_mutex_unlock(&qp->mutex);
      break;
    }
    case Affects::Nothing:
      break;
  }
}

Channel* create_channel(Context& ctx) {
  Process& proc = *ctx.proc;
  auto channel = std::unique_ptr<Channel>(new (std::nothrow) Channel);
  if (!channel || proc.inert()) {
    errno = ENOMEM;
    return nullptr;
  }
  channel->wake = proc.take(Process::Pool::Wake);
  if (channel->wake == 0) {
    errno = ENOMEM;
    return nullptr;
  }
  const int rc = channel->socket.open(proc.segment().at<WakeAddr>(channel->wake));
  if (rc != 0) {
    proc.give_back(Process::Pool::Wake, channel->wake);
    errno = rc;
    return nullptr;
  }
  channel->ctx = &ctx;
  channel->channel.context = &ctx.vctx.context;
  channel->channel.fd = channel->socket.fd();
  ctx.channels.fetch_add(1);
  std::lock_guard guard(proc.registry());
  proc.channels().push_back(channel.get());
  return channel.release();
}

int destroy_channel(Channel* channel) {
  if (channel->channel.refcnt != 0) return EBUSY;
  Process& proc = *channel->ctx->proc;
  channel->ctx->channels.fetch_sub(1);
  if (!proc.inert()) {
    std::lock_guard guard(proc.registry());
    auto& all = proc.channels();
    all.erase(std::remove(all.begin(), all.end(), channel), all.end());
    channel->socket.withdraw();
    proc.give_back(Process::Pool::Wake, channel->wake);
  }
  delete channel;
  return 0;
}

int get_cq_event(Channel& channel, ibv_cq** cq, void** user) {
  Process& proc = *channel.ctx->proc;
  for (;;) {
    if (proc.inert()) {
      errno = EIO;
      return -1;
    }
    bool more = false;
    Cq* found = take_cq_event(channel, &more);
    if (found != nullptr) {
      if (!more) {
        channel.socket.drain();
        if (any_pending(channel)) wake_self(proc, channel.wake);
      }
      *cq = base_of(found);
      *user = found->ex.cq_context;
      return 0;
    }
    const int rc = channel.socket.wait_one();
    if (rc != 0) {
      errno = rc;
      return -1;
    }
  }
}

void repeat_wake_up(Channel& channel) {
  if (any_pending(channel)) wake_self(*channel.ctx->proc, channel.wake);
}

void ack_cq_events(Cq& cq, unsigned count) {
  pthread_mutex_lock(&cq.ex.mutex);
  cq.ex.comp_events_completed += count;
  pthread_cond_broadcast(&cq.ex.cond);
  pthread_mutex_unlock(&cq.ex.mutex);
}

namespace {

// port: counted from 0.
void raise_port_event(Context& ctx, unsigned port, ibv_event_type type) {
  ibv_async_event event{};
  event.event_type = type;
  event.element.port_num = static_cast<int>(port + 1);
  raise_event(ctx, event);
}

}  // namespace

void service_ports(Context& ctx) {
  for (unsigned p = 0; p < ctx.conf->ports.size(); ++p) {
    const PortShared& port = ctx.proc->global()->ports[ctx.device->index][p];
    const uint32_t changes = port.changes.load();
    uint32_t& seen = ctx.port_changes_seen[p];
    const bool down = port.down.load() != 0;
    // Every change is an event; the last one leads to the present state.
    while (seen != changes) {
      ++seen;
      const bool to_down = ((changes - seen) & 1U) == 0 ? down : !down;
      raise_port_event(ctx, p, to_down ? IBV_EVENT_PORT_ERR : IBV_EVENT_PORT_ACTIVE);
    }
    const uint32_t gid_changes = port.gid_changes.load();
    for (uint32_t& known = ctx.gid_changes_seen[p]; known != gid_changes; ++known) {
      raise_port_event(ctx, p, IBV_EVENT_GID_CHANGE);
    }
  }
}

}  // namespace softhca
