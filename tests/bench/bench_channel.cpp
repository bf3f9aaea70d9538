// What one 8-byte message costs in ops: Channel::send_owned on one side, Poller::progress on the
// other, over a device that does next to nothing (a few words per request), so that the figure is
// ours.
//
// bench_channel --messages N runs N ping-pong messages and exits: the load for callgrind
// (count_instructions.py).
#include <benchmark/benchmark.h>
#include <infiniband/verbs.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>

#include "ops/channel.h"
#include "ops/frag_pool.h"
#include "ops/poller.h"
#include "ops/recv_pool.h"

namespace mend::bench {
namespace {

constexpr std::uint32_t kRing = 256;

// A receive queue and a completion queue of one side; post_send of the other side writes straight
// into them.
struct NullDevice {
  ibv_cq cq{};
  ibv_srq srq{};
  ibv_qp qp{};
  NullDevice* peer = nullptr;
  ibv_recv_wr* posted[kRing] = {};
  std::uint32_t posted_head = 0, posted_tail = 0;
  struct Entry {
    std::uint64_t wr_id;
    std::uint32_t bytes;
    std::uint32_t qpn;
  } entries[kRing] = {};
  std::uint32_t head = 0, tail = 0;
};

// The three entry points are not inlined, so that their cost can be told from ours.
void push(NullDevice& device, std::uint64_t wr_id, std::uint32_t bytes) {
  device.entries[device.tail++ % kRing] = {wr_id, bytes, device.qp.qp_num};
}

[[gnu::noinline]] int device_post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr**) {
  auto& device = *static_cast<NullDevice*>(qp->qp_context);
  NullDevice& peer = *device.peer;
  if (wr->opcode == IBV_WR_SEND) {
    const ibv_recv_wr* receive = peer.posted[peer.posted_head++ % kRing];
    std::memcpy(reinterpret_cast<void*>(receive->sg_list->addr),
                reinterpret_cast<void*>(wr->sg_list->addr), wr->sg_list->length);
    push(peer, receive->wr_id, wr->sg_list->length);
  } else {
    std::memcpy(reinterpret_cast<void*>(wr->wr.rdma.remote_addr),
                reinterpret_cast<void*>(wr->sg_list->addr), wr->sg_list->length);
  }
  if ((wr->send_flags & IBV_SEND_SIGNALED) != 0) {
    push(device, wr->wr_id, 0);
  }
  return 0;
}

[[gnu::noinline]] int device_post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr**) {
  auto& device = *static_cast<NullDevice*>(srq->srq_context);
  device.posted[device.posted_tail++ % kRing] = wr;
  return 0;
}

[[gnu::noinline]] int device_poll_cq(ibv_cq* cq, int limit, ibv_wc* out) {
  auto& device = *static_cast<NullDevice*>(cq->cq_context);
  int count = 0;
  while (count < limit && device.head != device.tail) {
    const NullDevice::Entry& entry = device.entries[device.head++ % kRing];
    out[count].wr_id = entry.wr_id;
    out[count].status = IBV_WC_SUCCESS;
    out[count].byte_len = entry.bytes;
    out[count].qp_num = entry.qpn;
    ++count;
  }
  return count;
}

bool register_chunk(void*, void*, std::size_t, ops::LocalKeys&) { return true; }
void unregister_chunk(void*, void*) {}

class Side {
 public:
  Side(ibv_context& context, std::uint32_t qpn) {
    device.cq.context = &context;
    device.cq.cq_context = &device;
    device.srq.context = &context;
    device.srq.srq_context = &device;
    device.qp.context = &context;
    device.qp.qp_context = &device;
    device.qp.qp_num = qpn;
    const ops::MemoryHooks hooks{nullptr, register_chunk, unregister_chunk};
    frags = ops::FragPool::create({}, hooks).value();
    ops::RecvPoolConfig recv;
    recv.srq = &device.srq;
    recv.payload_bytes = 2048;
    recv.depth = kRing;
    recv.max_depth = kRing;
    recv_pool = ops::RecvPool::create(recv, hooks).value();
    poller = std::make_unique<ops::Poller>(&device.cq, *recv_pool, kRing);
    ops::ChannelConfig config;
    config.max_inline = 220;
    config.ack_cell = &cell;
    config.frags = frags.get();
    channel = std::make_unique<ops::Channel>(*poller, config, ops::ChannelEvents{});
  }
  ~Side() {
    channel->stop_posting();
    channel->detach();
    poller->forget(*channel, this);
  }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  void attach(Side& other) {
    device.peer = &other.device;
    const Qpn qpn{device.qp.qp_num};
    poller->add_lane(
        qpn, Epoch{1}, *channel,
        [](void* context, std::uint8_t, std::span<const std::byte>) {
          ++static_cast<Side*>(context)->received;
        },
        this);
    ops::Lane lane;
    lane.qp = &device.qp;
    lane.qpn = qpn;
    lane.epoch = Epoch{1};
    lane.ack_cell_addr = reinterpret_cast<std::uint64_t>(&other.cell.from_peer);
    channel->attach(lane);
  }

  // As the component does it for a send without descriptor.
  [[gnu::noinline]] void send(std::uint64_t value) {
    ops::Frag* frag = frags->get();
    std::memcpy(frag->payload(), &value, sizeof(value));
    frag->length = sizeof(value);
    channel->send_owned(*frag, 1);
  }

  NullDevice device;
  std::unique_ptr<ops::FragPool> frags;
  std::unique_ptr<ops::RecvPool> recv_pool;
  std::unique_ptr<ops::Poller> poller;
  ops::AckCell cell;
  std::unique_ptr<ops::Channel> channel;
  std::uint64_t received = 0;
};

ibv_context null_context() {
  ibv_context context{};
  context.ops.post_send = device_post_send;
  context.ops.poll_cq = device_poll_cq;
  context.ops.post_srq_recv = device_post_srq_recv;
  return context;
}

struct Pair {
  ibv_context context = null_context();
  Side a{context, 100};
  Side b{context, 200};

  Pair() {
    a.attach(b);
    b.attach(a);
    if (a.channel->start(Seq{0}) != ops::ReplayVerdict::Ok ||
        b.channel->start(Seq{0}) != ops::ReplayVerdict::Ok) {
      std::abort();
    }
  }

  void ping_pong(std::uint64_t value) {
    a.send(value);
    b.poller->progress();
    b.send(value);
    a.poller->progress();
  }
};

void eight_bytes_there_and_back(benchmark::State& state) {
  Pair pair;
  std::uint64_t count = 0;
  for (auto _ : state) {
    pair.ping_pong(count++);
  }
  if (pair.a.received != count || pair.b.received != count) {
    state.SkipWithError("messages were lost");
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(2 * count));
}
BENCHMARK(eight_bytes_there_and_back);

// One direction only: acknowledgements travel by the ack cell.
void eight_bytes_one_way(benchmark::State& state) {
  Pair pair;
  std::uint64_t count = 0;
  for (auto _ : state) {
    pair.a.send(count++);
    pair.b.poller->progress();
  }
  if (pair.b.received != count) {
    state.SkipWithError("messages were lost");
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(count));
}
BENCHMARK(eight_bytes_one_way);

}  // namespace
}  // namespace mend::bench

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "--messages") {
    const std::uint64_t messages = std::strtoull(argv[2], nullptr, 10);
    mend::bench::Pair pair;
    for (std::uint64_t i = 0; i < messages / 2; ++i) {
      pair.ping_pong(i);
    }
    return pair.a.received + pair.b.received == messages ? 0 : 1;
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
