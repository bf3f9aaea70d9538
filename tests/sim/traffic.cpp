#include "tests/sim/traffic.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "ops/channel.h"
#include "ops/frag_pool.h"
#include "plugin/conn/backoff.h"

namespace mend::sim {
namespace {

constexpr std::byte kReused{0x5a};  // a put's target, after its owner was told
constexpr std::byte kSpent{0xa5};   // a put's source, after its callback
constexpr std::byte kTaken{0x33};   // a get's landing buffer, after its callback
constexpr std::uint8_t kTag = 0x42;

void fill(std::span<std::byte> bytes, std::uint64_t seed) {
  std::uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (std::size_t i = 0; i < bytes.size(); i += 8) {
    const std::uint64_t word = conn::next_random(state);
    std::memcpy(bytes.data() + i, &word, std::min<std::size_t>(8, bytes.size() - i));
  }
}

bool holds(std::span<const std::byte> bytes, std::uint64_t seed) {
  std::vector<std::byte> wanted(bytes.size());
  fill(wanted, seed);
  return std::equal(bytes.begin(), bytes.end(), wanted.begin());
}

bool holds_only(std::span<const std::byte> bytes, std::byte value) {
  return std::all_of(bytes.begin(), bytes.end(), [value](std::byte b) { return b == value; });
}

std::uint64_t seed_of(std::size_t from, std::size_t to, std::uint64_t number) {
  return (number << 16) | (from << 8) | to;
}

}  // namespace

Traffic::Traffic(std::deque<Party>& parties) : parties_(parties) {}

void Traffic::complain(std::string what) {
  if (complaints_.size() < 20) complaints_.push_back(std::move(what));
}

std::span<std::byte> Traffic::room(std::size_t node, std::uint32_t bytes) {
  Party& party = parties_[node];
  const std::size_t at = party.arena_used;
  party.arena_used = at + (bytes + 15) / 16 * 16;
  if (party.arena_used > party.arena.size()) {
    complain("the test asks for more memory than the arena has");
    party.arena_used = 64;
  }
  return std::span(party.arena).subspan(at, bytes);
}

// --- submission ---

void Traffic::send(std::size_t from, std::size_t to, std::uint32_t bytes) {
  Party& party = parties_[from];
  Flow& flow = flows_[{from, to}];
  ops::Frag* frag = party.transport->alloc_frag(bytes);
  if (frag == nullptr) return complain("no fragment");
  fill({frag->payload(), bytes}, seed_of(from, to, flow.sent));
  frag->length = bytes;
  ++flow.sent;
  flow.lengths.push_back(bytes);
  ++sent_;
  party.to(to).send_owned(*frag, kTag);
}

Traffic::Rdma& Traffic::new_rdma(std::size_t from, std::size_t to, std::uint32_t bytes,
                                 bool is_put) {
  std::deque<Rdma>& list = is_put ? puts_ : gets_;
  Rdma& rdma = list.emplace_back();
  rdma.traffic = this;
  rdma.name = {from, to, flows_[{from, to}].sent};
  rdma.number = started_++;
  const auto local = room(from, bytes);
  const auto remote = room(to, bytes);
  rdma.source = is_put ? local : remote;
  rdma.target = is_put ? remote : local;
  fill(rdma.source, seed_of(from, to, rdma.number));
  rdma.op.dir = is_put ? ops::RdmaOp::Dir::Put : ops::RdmaOp::Dir::Get;
  rdma.op.local = local.data();
  rdma.op.local_keys = &parties_[from].region.local;
  rdma.op.remote = reinterpret_cast<std::uintptr_t>(remote.data());
  rdma.op.remote_keys = parties_[to].region.remote;
  rdma.op.length = bytes;
  rdma.op.user[0] = &rdma;
  rdma.op.done = &Traffic::rdma_done;
  return rdma;
}

void Traffic::put(std::size_t from, std::size_t to, std::uint32_t bytes) {
  Rdma& rdma = new_rdma(from, to, bytes, true);
  put_by_target_[{to, rdma.op.remote}] = &rdma;
  flows_[{from, to}].untold.push_back(&rdma);
  parties_[from].to(to).rdma(rdma.op);
}

void Traffic::get(std::size_t from, std::size_t to, std::uint32_t bytes) {
  Rdma& rdma = new_rdma(from, to, bytes, false);
  parties_[from].to(to).rdma(rdma.op);
}

void Traffic::add(std::size_t from, std::size_t to) {
  Atomic& atomic = atomics_.emplace_back();
  atomic.traffic = this;
  atomic.to = to;
  atomic.call.op = ops::AmoOp::Add;
  atomic.call.remote = reinterpret_cast<std::uintptr_t>(parties_[to].arena.data());
  atomic.call.rkey = parties_[to].region.remote.rkey[0];
  atomic.call.operand = 1;
  atomic.call.user[0] = &atomic;
  atomic.call.done = &Traffic::atomic_done;
  ++started_;
  parties_[from].to(to).atomic(atomic.call);
}

// --- what comes back ---

void Traffic::rdma_done(ops::RdmaOp& op) {
  Rdma& rdma = *static_cast<Rdma*>(op.user[0]);
  Traffic& self = *rdma.traffic;
  const bool is_put = op.dir == ops::RdmaOp::Dir::Put;
  const std::uint64_t seed = seed_of(rdma.name.from, rdma.name.to, rdma.number);
  if (++rdma.callbacks != 1)
    self.complain(fmt::format("callback {} of one operation", rdma.callbacks));
  ++self.finished_;
  // A put's bytes may still be on their way to memory: only what follows on its queue pair says
  // that they are there.
  if (!is_put && !holds(rdma.target, seed))
    self.complain(fmt::format("get {} <- {} number {} is done, but the data is not there",
                              rdma.name.from, rdma.name.to, rdma.number));
  const std::span<std::byte> mine = is_put ? rdma.source : rdma.target;
  std::fill(mine.begin(), mine.end(), is_put ? kSpent : kTaken);
}

void Traffic::atomic_done(ops::AmoCall& call) {
  Atomic& atomic = *static_cast<Atomic*>(call.user[0]);
  Traffic& self = *atomic.traffic;
  if (++atomic.callbacks != 1) self.complain("an atomic was called back twice");
  ++self.finished_;
  if (!self.results_[atomic.to].insert(call.result).second)
    self.complain(fmt::format("two atomics at {} both found {}", atomic.to, call.result));
}

void Traffic::on_receive(std::size_t at, std::size_t from, std::span<const std::byte> payload) {
  Flow& flow = flows_[{from, at}];
  const std::uint64_t number = flow.delivered++;
  ++delivered_;
  if (number >= flow.sent)
    return complain(fmt::format("{} -> {}: a message nobody sent", from, at));
  const std::uint32_t length = flow.lengths.front();
  flow.lengths.pop_front();
  if (payload.size() != length || !holds(payload, seed_of(from, at, number)))
    complain(fmt::format("{} -> {}: message {} is not what was sent", from, at, number));
  tell(flow, number);
}

// The receiver of message `number` now knows about the puts before it: their data must be there,
// and the memory is its own again.
void Traffic::tell(Flow& flow, std::uint64_t number) {
  while (!flow.untold.empty() && flow.untold.front()->name.notice <= number) {
    Rdma& put = *flow.untold.front();
    flow.untold.pop_front();
    if (!holds(put.target, seed_of(put.name.from, put.name.to, put.number)))
      complain(fmt::format("put {} -> {} number {} was announced, but its data is not there",
                           put.name.from, put.name.to, put.number));
    put.told = true;
    std::fill(put.target.begin(), put.target.end(), kReused);
  }
}

std::uint64_t Traffic::sent(std::size_t from, std::size_t to) const {
  const auto it = flows_.find({from, to});
  return it == flows_.end() ? 0 : it->second.sent;
}

const Traffic::PutName* Traffic::put_at(std::size_t node, std::uint64_t address) const {
  const auto it = put_by_target_.find({node, address});
  return it == put_by_target_.end() ? nullptr : &it->second->name;
}

void Traffic::check_memory() {
  for (const Rdma& put : puts_) {
    const std::uint64_t seed = seed_of(put.name.from, put.name.to, put.number);
    if (put.told ? !holds_only(put.target, kReused) : !holds(put.target, seed))
      complain(fmt::format("put {} -> {} number {}: its target was written again after {}",
                           put.name.from, put.name.to, put.number,
                           put.told ? "it was told of" : "its end"));
  }
  for (const Rdma& get : gets_)
    if (!holds_only(get.target, kTaken))
      complain(fmt::format("get {} <- {}: written again after its callback", get.name.from,
                           get.name.to));
  for (const auto& [node, results] : results_) {
    std::uint64_t counter = 0;
    std::memcpy(&counter, parties_[node].arena.data(), sizeof counter);
    if (counter != results.size() || *results.rbegin() != counter - 1)
      complain(fmt::format("{} atomics at {} left a count of {}", results.size(), node, counter));
  }
}

}  // namespace mend::sim
