#include "tests/unit/transport/fabric_kit.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "ops/frag_pool.h"
#include "plugin/conn/device_choice.h"
#include "plugin/conn/host.h"

namespace mend::test {
namespace {

constexpr std::uint32_t kJob = 7;

std::string fabric_name() {
  static std::atomic<int> count{0};
  return "test." + std::to_string(getpid()) + "." + std::to_string(count++);
}

void on_receive(void* from, std::uint8_t tag, std::span<const std::byte> payload) {
  const auto* origin = static_cast<const conn::Origin*>(from);
  auto* rank = static_cast<Rank*>(origin->context);
  const auto name = rank->names.find(origin->peer);
  rank->inbox.push_back({name == rank->names.end() ? 0xffffffffu : name->second,
                         tag,
                         {payload.begin(), payload.end()}});
}

Result<std::unique_ptr<conn::Transport>> create(const conn::Params& params,
                                                const conn::Identity& self,
                                                const conn::Upcalls& upcalls, conn::Host* host) {
  if (host == nullptr) return conn::Transport::create(params, self, upcalls);
  auto devices = conn::choose_devices(params, self);
  if (!devices) return tl::unexpected(devices.error());
  return conn::Transport::create_on(std::move(*devices), params, self, upcalls, *host);
}

}  // namespace

std::vector<std::byte> pattern(std::size_t bytes, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < bytes; i += 8) {
    const std::uint64_t word = random();
    std::memcpy(data.data() + i, &word, std::min<std::size_t>(8, bytes - i));
  }
  return data;
}

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

conn::Params quick() {
  conn::Params params;
  params.ib_timeout = 8;
  params.heartbeat_interval_ms = 50;
  params.qp_linger_ms = 20;
  params.reconnect_backoff_min_ms = 1;
  return params;
}

ops::RdmaOp transfer(ops::RdmaOp::Dir dir, std::span<std::byte> local, const conn::Region& mine,
                     const std::byte* remote, const conn::Region& theirs, int& done) {
  ops::RdmaOp op;
  op.dir = dir;
  op.local = local.data();
  op.local_keys = &mine.local;
  op.remote = reinterpret_cast<std::uintptr_t>(remote);
  op.remote_keys = theirs.remote;
  op.length = local.size();
  op.user[0] = &done;
  op.done = [](ops::RdmaOp& self) { ++*static_cast<int*>(self.user[0]); };
  return op;
}

std::int64_t Rank::stat(const char* name) const {
  return nlohmann::json::parse(transport->stats_json()).at(name);
}

int Rank::progress() {
  int events = 0;
  for (std::size_t i = 0; i < transport->rails().size(); ++i)
    events += transport->progress(RailId{static_cast<std::uint8_t>(i)});
  return events;
}

void Rank::send(std::uint32_t other, std::size_t bytes, std::uint64_t seed, std::uint8_t tag) {
  ops::Frag* frag = transport->alloc_frag(static_cast<std::uint32_t>(bytes));
  const auto data = pattern(bytes, seed);
  if (bytes != 0) std::memcpy(frag->payload(), data.data(), bytes);
  frag->length = static_cast<std::uint32_t>(bytes);
  to(other).send_owned(*frag, tag);
}

Fabric::Fabric(std::uint32_t ranks, conn::Params params, bool introduce_all, conn::Host* host) {
  params.verbs_library = "softhca";
  params.softhca_path = MEND_SOFTHCA_PATH;
  const std::string name = fabric_name();
  setenv("SOFTHCA_FABRIC", name.c_str(), 1);
  for (std::uint32_t i = 0; i < ranks; ++i) {
    auto rank = std::make_unique<Rank>();
    rank->rank = i;
    conn::Identity self;
    self.job_key = 0x1234;
    self.jobid = kJob;
    self.rank = i;
    self.host = "here";
    self.fabric = name;
    self.expected_peers = ranks - 1;
    conn::Upcalls upcalls;
    upcalls.context = rank.get();
    upcalls.receive = &on_receive;
    upcalls.gave_up = [](void* context, conn::Peer*, const std::string& text) {
      static_cast<Rank*>(context)->gave_up.push_back(text);
    };
    upcalls.warn = [](void* context, const std::string& text) {
      static_cast<Rank*>(context)->warnings.push_back(text);
    };
    upcalls.unknown_peer = [](void* context, std::uint32_t who) {
      static_cast<Rank*>(context)->unknown.push_back(who);
    };
    auto transport = create(params, self, upcalls, host);
    if (!transport) {
      error_ = transport.error().message;
      return;
    }
    rank->transport = std::move(*transport);
    ranks_.push_back(std::move(rank));
  }
  if (!introduce_all) return;
  for (std::uint32_t a = 0; a < ranks; ++a)
    for (std::uint32_t b = 0; b < ranks; ++b)
      if (a != b) introduce(a, b);
}

Fabric::~Fabric() = default;

void Fabric::introduce(std::uint32_t a, std::uint32_t b) {
  Rank& rank = *ranks_[a];
  auto peer = rank.transport->add_peer(kJob, b, "here", ranks_[b]->transport->modex());
  if (!peer) {
    error_ = peer.error().message;
    return;
  }
  rank.peers[b] = *peer;
  rank.names[*peer] = b;
}

bool Fabric::until(const std::function<bool()>& done, int limit_ms) {
  std::vector<Rank*> all;
  for (const auto& rank : ranks_) all.push_back(rank.get());
  return drive(all, done, limit_ms);
}

bool Fabric::until_by(std::initializer_list<std::uint32_t> active,
                      const std::function<bool()>& done, int limit_ms) {
  std::vector<Rank*> some;
  for (const std::uint32_t rank : active) some.push_back(ranks_[rank].get());
  return drive(some, done, limit_ms);
}

bool Fabric::drive(const std::vector<Rank*>& active, const std::function<bool()>& done,
                   int limit_ms) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit_ms);
  while (!done()) {
    if (std::chrono::steady_clock::now() > limit) return false;
    int events = 0;
    for (Rank* rank : active) events += rank->progress();
    if (events == 0) std::this_thread::yield();
  }
  return true;
}

void Fabric::close_all() {
  std::vector<std::thread> closers;
  closers.reserve(ranks_.size());
  for (const auto& rank : ranks_)
    closers.emplace_back([raw = rank.get()] { raw->transport->close(); });
  for (std::thread& closer : closers) closer.join();
}

PagePut::PagePut(Fabric& fabric) : fabric_(fabric), source_(pattern(4096, 7)), target_(4096) {
  const auto registered = [&](std::uint32_t rank, std::vector<std::byte>& memory,
                              conn::Region& region) {
    return bool(
        fabric[rank].transport->register_region(memory.data(), memory.size(), kAllAccess, region));
  };
  EXPECT_TRUE(registered(0, source_, mine_) && registered(1, target_, theirs_));
  put_ = transfer(ops::RdmaOp::Dir::Put, source_, mine_, target_.data(), theirs_, done_);
}

PagePut::~PagePut() {
  fabric_[0].transport->deregister_region(mine_);
  fabric_[1].transport->deregister_region(theirs_);
}

void PagePut::submit() { fabric_[0].to(1).rdma(put_); }

}  // namespace mend::test
