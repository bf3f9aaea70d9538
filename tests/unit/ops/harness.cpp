#include "tests/unit/ops/harness.h"

#include <cstdlib>
#include <cstring>

namespace mend::test {
namespace {

bool register_chunk(void* context, void*, std::size_t, ops::LocalKeys& keys) {
  auto& side = *static_cast<Side*>(context);
  if (side.refuse_memory) {
    return false;
  }
  ++side.chunks_registered;
  keys = side.keys;
  return true;
}

void unregister_chunk(void* context, void*) { --static_cast<Side*>(context)->chunks_registered; }

void deliver(void* context, std::uint8_t tag, std::span<const std::byte> payload) {
  auto& side = *static_cast<Side*>(context);
  side.received.push_back(
      Message{tag, std::string(reinterpret_cast<const char*>(payload.data()), payload.size())});
  if (side.on_message != nullptr) {
    side.on_message(side);
  }
}

ops::ChannelEvents events_of(Side& side) {
  ops::ChannelEvents events;
  events.context = &side;
  events.wanted = [](void* context) { ++static_cast<Side*>(context)->wanted; };
  events.link_lost = [](void* context, Epoch epoch, int status, std::uint32_t vendor_err) {
    static_cast<Side*>(context)->lost.push_back(LostEvent{epoch, status, vendor_err});
  };
  events.log_empty = [](void* context, Epoch) { ++static_cast<Side*>(context)->log_empties; };
  events.first_receive = [](void* context, Epoch) {
    ++static_cast<Side*>(context)->first_receives;
  };
  events.fault = [](void* context, ops::Fault fault, std::uint64_t detail) {
    static_cast<Side*>(context)->faults.emplace_back(fault, detail);
  };
  events.may_access = [](void* context, std::uint64_t, std::uint32_t, Rkey) {
    return static_cast<Side*>(context)->allow_access;
  };
  return events;
}

}  // namespace

Side::Side(FakeFabric& the_fabric, const Options& the_options)
    : fabric(the_fabric), options(the_options) {
  fabric.init(cq);
  fabric.init(srq);
  keys.lkey[0] = Lkey{42};
  const ops::MemoryHooks hooks{this, register_chunk, unregister_chunk};
  frags = ops::FragPool::create({.name = "test",
                                 .payload_bytes = options.payload_bytes,
                                 .frags_per_chunk = 16,
                                 .max_frags = 0xffffffffu},
                                hooks)
              .value();
  ops::RecvPoolConfig recv;
  recv.srq = options.srq ? &srq.base : nullptr;
  recv.payload_bytes = options.payload_bytes;
  recv.depth = options.recv_depth;
  recv.max_depth = options.recv_depth * 16;
  recv_pool = ops::RecvPool::create(recv, hooks).value();
  poller = std::make_unique<ops::Poller>(&cq.base, *recv_pool, 1024);
  ops::ChannelConfig config;
  config.window = options.window;
  config.send_depth = options.send_depth;
  config.signal_every = options.signal_every;
  config.max_inline = options.max_inline;
  config.max_message = options.max_message;
  config.max_payload = options.payload_bytes;
  config.ack_cell = &cell;
  config.ack_keys = &keys;
  config.frags = frags.get();
  channel = std::make_unique<ops::Channel>(*poller, config, events_of(*this));
}

Side::~Side() {
  channel->stop_posting();
  channel->detach();
  poller->forget(*channel, this);
}

void Side::send(const std::string& text, std::uint8_t tag) {
  ops::Frag* frag = frags->get();
  std::memcpy(frag->payload(), text.data(), text.size());
  frag->length = static_cast<std::uint32_t>(text.size());
  channel->send_owned(*frag, tag);
}

Pair::~Pair() = default;

void Pair::connect() {
  epoch = epoch.next();
  for (Side* side : {&a, &b}) {
    side->qps.push_back(std::make_unique<FakeQp>());
    FakeSrq* receive = &side->srq;
    if (!side->options.srq) {
      side->own_rqs.push_back(std::make_unique<FakeSrq>());
      receive = side->own_rqs.back().get();
      fabric.init(*receive);
    }
    // One slot more for acks; the beacon's is not used here.
    fabric.init(side->qp(), side->cq, *receive, side->options.send_depth + 1,
                side->options.max_inline);
    if (!side->options.srq) {
      if (!side->recv_pool->attach_queue(&side->qp().base)) {
        std::abort();
      }
    }
  }
  fabric.connect(a.qp(), b.qp());
  for (auto [side, other] : {std::pair{&a, &b}, std::pair{&b, &a}}) {
    side->poller->add_lane(Qpn{side->qp().base.qp_num}, epoch, *side->channel, deliver, side);
    ops::Lane lane;
    lane.qp = &side->qp().base;
    lane.qpn = Qpn{side->qp().base.qp_num};
    lane.epoch = epoch;
    lane.ack_cell_addr = reinterpret_cast<std::uint64_t>(&other->cell.from_peer);
    side->channel->attach(lane);
  }
}

void Pair::start() {
  a_progress = a.channel->progress_now();
  b_progress = b.channel->progress_now();
  a_verdict = a.channel->start(b_progress.rx_next);
  b_verdict = b.channel->start(a_progress.rx_next);
}

void Pair::fence(Side& side) {
  side.channel->stop_posting();
  fabric.flush(side.qp());
  side.poller->drain_for_fence();
  fabric.reset(side.qp());
  side.channel->detach();
  side.poller->remove_lane(Qpn{side.qp().base.qp_num});
  if (!side.options.srq) {
    side.recv_pool->detach_queue(&side.qp().base);
  }
}

void Pair::recover() {
  fence(a);
  fence(b);
  open();
}

void Pair::pump(int rounds) {
  for (int i = 0; i < rounds; ++i) {
    a.progress();
    b.progress();
    // A request that met no receive buffer is tried again.
    for (Side* side : {&a, &b}) {
      if (!side->qps.empty() && side->qp().automatic) {
        fabric.execute_all(side->qp());
      }
    }
  }
}

}  // namespace mend::test
