#include "tests/sim/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "ops/poller.h"
#include "plugin/conn/clock.h"
#include "plugin/conn/device_choice.h"
#include "softhca/engine/context.h"
#include "tests/unit/ops/channel_access.h"

namespace mend::sim {
namespace {

constexpr std::uint32_t kJob = 7;
// A pause in blocking code is at least this long here: what happens in between happens all the
// same.
constexpr TimeNs kShortestPause = 200'000;
// So many polls without a result make a process write the acknowledgements it owes.
constexpr int kIdlePolls = 66;

enum Part : unsigned { kApp, kService, kWorker, kParts };

}  // namespace

conn::Params Options::small_params() {
  conn::Params params;
  params.window = 8;
  params.srq_depth = 32;
  params.max_send_size = 512;
  params.small_frag_size = 128;
  params.send_queue_depth = 32;
  return params;
}

// --- time ---

std::chrono::nanoseconds World::Time::now() const {
  return std::chrono::nanoseconds(world_.fabric_->now());
}

void World::Time::pause(std::chrono::nanoseconds time) const {
  const TimeNs length = std::max(static_cast<TimeNs>(time.count()), kShortestPause);
  if (Fiber::current() != nullptr)
    Fiber::yield(world_.now() + length);
  else
    world_.fabric_->advance(length);  // set-up and the end: nobody else is there
}

// --- set-up ---

World::World(const Options& options) : random_(options.seed), time_(*this) {
  fabric_ = std::make_unique<softhca::sim::Fabric>();
  tap_ = std::make_unique<Tap>(*fabric_);
  tap_->later = [this](std::uint64_t delay, std::function<void()> what) {
    at(delay, std::move(what));
  };
  tap_->wake = [this](std::size_t node, int fd) { service(node).mark_readable(fd); };
  traffic_ = std::make_unique<Traffic>(parties_);
  judge_ = std::make_unique<Judge>(*fabric_, *tap_, *traffic_);
  replace_clock(&time_);
  for (std::size_t i = 0; i < options.nodes && error_.empty(); ++i) create_node(options.params);
  if (!error_.empty() || !options.introduce) return;
  for (std::size_t a = 0; a < nodes_.size(); ++a)
    for (std::size_t b = 0; b < nodes_.size(); ++b)
      if (a != b) introduce(a, b);
}

World::~World() {
  events_.clear();
  for (std::size_t i = 0; i < nodes_.size(); ++i)
    if (nodes_[i].transport) nodes_[i].transport->deregister_region(parties_[i].region);
  for (Node& node : nodes_) node.transport.reset();
  replace_clock(nullptr);
}

void World::create_node(const conn::Params& params) {
  const std::size_t index = nodes_.size();
  Node& node = nodes_.emplace_back();
  node.host = std::make_unique<SimHost>(random_());
  node.host->let_time_pass = [this] { fabric_->advance(kShortestPause); };
  auto nic = conn::Nic::open(tap_->api(), nullptr);
  if (!nic) {
    error_ = nic.error().message;
    return;
  }
  conn::Devices devices;
  devices.api = &tap_->api();
  devices.kind = conn::DeviceKind::Softhca;
  devices.ports.push_back({nic->get(), 1, -1});
  devices.nics.push_back(std::move(*nic));
  conn::Identity self;
  self.job_key = 0x1234;
  self.jobid = kJob;
  self.rank = static_cast<std::uint32_t>(index);
  self.host = "here";
  conn::Upcalls upcalls;
  upcalls.context = &upcalls_.emplace_back(UpcallContext{this, index});
  upcalls.receive = &World::on_receive;
  upcalls.gave_up = [](void* context, conn::Peer* lost, const std::string& text) {
    const auto* self_context = static_cast<UpcallContext*>(context);
    Node& self_node = self_context->world->nodes_[self_context->node];
    (lost != nullptr ? self_node.gave_up : self_node.own_ends).push_back(text);
  };
  auto made = conn::Transport::create_on(std::move(devices), params, self, upcalls, *node.host);
  if (!made) {
    error_ = made.error().message;
    return;
  }
  node.transport = std::move(*made);
  register_arena(index);
}

void World::register_arena(std::size_t node) {
  Party& party = parties_.emplace_back();
  party.transport = nodes_[node].transport.get();
  party.arena.resize(kArena);
  constexpr unsigned kAll = conn::kLocalWrite | conn::kRemoteRead | conn::kRemoteWrite;
  const auto done =
      party.transport->register_region(party.arena.data(), party.arena.size(), kAll, party.region);
  if (!done) error_ = done.error().message;
}

void World::introduce(std::size_t a, std::size_t b) {
  Party& party = parties_[a];
  party.peers.resize(nodes_.size(), nullptr);
  auto peer = party.transport->add_peer(kJob, static_cast<std::uint32_t>(b), "here",
                                        nodes_[b].transport->modex());
  if (!peer) {
    error_ = peer.error().message;
    return;
  }
  party.peers[b] = *peer;
  party.node_of[*peer] = b;
}

ops::Channel& World::channel(std::size_t from, std::size_t to) { return parties_[from].to(to); }

void World::on_receive(void* from, std::uint8_t, std::span<const std::byte> payload) {
  const auto* origin = static_cast<const conn::Origin*>(from);
  const auto* self = static_cast<UpcallContext*>(origin->context);
  const Party& party = self->world->parties_[self->node];
  const auto sender = party.node_of.find(origin->peer);
  if (sender == party.node_of.end())
    self->world->traffic_->complain("a message of nobody");
  else
    self->world->traffic_->on_receive(self->node, sender->second, payload);
}

std::int64_t World::stat(std::size_t node, const char* name) const {
  const auto names = conn::Transport::stat_names();
  const auto it = std::find_if(names.begin(), names.end(),
                               [name](const char* known) { return std::strcmp(known, name) == 0; });
  if (it == names.end()) return -1;
  return static_cast<std::int64_t>(
      nodes_[node].transport->stat(static_cast<unsigned>(it - names.begin())));
}

std::int64_t World::sum(const char* name) const {
  std::int64_t total = 0;
  for (std::size_t i = 0; i < nodes_.size(); ++i) total += stat(i, name);
  return total;
}

// --- driving ---

void World::at(TimeNs delay, std::function<void()> what) {
  events_.emplace(now() + delay, std::move(what));
}

void World::set_sequence(std::uint64_t count) {
  for (std::size_t a = 0; a < nodes_.size(); ++a)
    for (std::size_t b = 0; b < nodes_.size(); ++b)
      if (a != b) ops::ChannelTestAccess::set_sequence(channel(a, b), count);
  judge_->next_sequence(static_cast<std::uint32_t>(count));
}

void World::nap(std::size_t node, TimeNs time) { nodes_[node].asleep_until = now() + time; }

bool World::run_events() {
  bool any = false;
  while (!events_.empty() && events_.begin()->first <= now()) {
    const auto what = std::move(events_.begin()->second);
    events_.erase(events_.begin());
    what();
    any = true;
  }
  return any;
}

bool World::act(std::size_t index, unsigned part) {
  Node& node = nodes_[index];
  switch (part) {
    case kApp:
      if (node.app) return node.app->wake_at() <= now() && node.app->resume();
      return node.asleep_until <= now() && node.transport->progress(RailId{0}) > 0;
    case kService:
      return node.host->service->run_one(now(), random_);
    default:
      return node.host->worker->run(now());
  }
}

bool World::round() {
  bool any = run_events();
  std::vector<unsigned> order(nodes_.size() * kParts);
  std::iota(order.begin(), order.end(), 0u);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_() % i]);
  for (const unsigned who : order) {
    if (percent(20)) {
      any = true;  // not now; but it may have had something to do
      continue;
    }
    any = act(who / kParts, who % kParts) || any;
    judge_->look();
  }
  if (tap_->ghost_hits())
    traffic_->complain("a packet of a dead queue pair would be accepted by a new one");
  fabric_->settle();
  return any;
}

// Everybody once more, without exception, and long enough for what idle processes do.
bool World::everybody_idle() {
  bool any = run_events();
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    any = act(i, kService) || any;
    any = act(i, kWorker) || any;
    for (int poll = 0; poll < kIdlePolls && !any; ++poll) any = act(i, kApp) || any;
  }
  judge_->look();
  fabric_->settle();
  return !any;
}

TimeNs World::next_time() const {
  TimeNs next = events_.empty() ? kNever : events_.begin()->first;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    next = std::min({next, node.host->service->next_timer(), node.host->worker->next_wake(),
                     softhca::context_of(tap_->context(i))->proc->next_deadline()});
    if (node.asleep_until > now()) next = std::min(next, node.asleep_until);
    if (node.app && !node.app->finished()) next = std::min(next, node.app->wake_at());
  }
  return next;
}

void World::pass_time(TimeNs limit_at) {
  const TimeNs next = std::min(next_time(), limit_at);
  fabric_->advance(next > now() ? next - now() : 1000);
}

bool World::run_until(const std::function<bool()>& done, TimeNs limit) {
  const TimeNs limit_at = now() + limit;
  int idle = 0;
  while (!done()) {
    if (now() >= limit_at) return false;
    for (int i = 0; i < 4; ++i) round();
    // What the last idle look made somebody do shows up in the next.
    idle = everybody_idle() ? idle + 1 : 0;
    if (idle >= 2) {
      pass_time(limit_at);
      idle = 0;
    } else {
      fabric_->advance(random_() % 2000);
    }
  }
  return true;
}

void World::run_for(TimeNs time) {
  run_until([] { return false; }, time);
}

bool World::finish_traffic(TimeNs limit) {
  return run_until(
      [this] {
        if (!traffic_->all_done()) return false;
        for (const Node& node : nodes_)
          if (!node.transport->flushed()) return false;
        return true;
      },
      limit);
}

// --- the end ---

void World::close_and_check() {
  for (Node& node : nodes_) {
    node.asleep_until = 0;
    node.app = std::make_unique<Fiber>([raw = node.transport.get()] { raw->close(); });
  }
  const bool closed = run_until(
      [this] {
        return std::all_of(nodes_.begin(), nodes_.end(),
                           [](const Node& node) { return node.app->finished(); });
      },
      300 * conn::kSecond);
  if (!closed) traffic_->complain("closing did not end");
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (!nodes_[i].gave_up.empty())
      traffic_->complain(fmt::format("{} gave up: {}", i, nodes_[i].gave_up.front()));
    if (stat(i, "dup_rx") != 0) traffic_->complain(fmt::format("{}: dup_rx is not 0", i));
    if (stat(i, "srq_lost") != 0) traffic_->complain(fmt::format("{}: srq_lost is not 0", i));
  }
  traffic_->check_memory();
  judge_->at_the_end();
}

std::string World::verdict() {
  if (!error_.empty()) return error_;
  if (!finish_traffic())
    traffic_->complain(
        fmt::format("not everything ended: {} of {}", traffic_->finished(), traffic_->submitted()));
  else
    close_and_check();
  std::string text;
  for (const std::string& complaint : traffic_->complaints()) text += complaint + "\n";
  return text;
}

}  // namespace mend::sim
