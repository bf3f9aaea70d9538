// World: whole mend processes (conn::Transport with everything below it) on one in-process fabric,
// driven step by step. Who acts next is decided by a seed; time passes only when nobody has
// anything to do, or by a small random amount.
//
// Thread contract: one thread, one world at a time. Invariant: the same seed, options and calls
// give the same run.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "plugin/conn/params.h"
#include "plugin/conn/transport.h"
#include "plugin/verbs/clock.h"
#include "softhca/engine/sim.h"
#include "tests/sim/executors.h"
#include "tests/sim/judge.h"
#include "tests/sim/tap.h"
#include "tests/sim/traffic.h"

namespace mend::sim {

struct Options {
  std::size_t nodes = 2;
  std::uint64_t seed = 1;
  conn::Params params = small_params();
  bool introduce = true;  // everybody to everybody
  static conn::Params small_params();
};

class World {
 public:
  explicit World(const Options& options);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  const std::string& error() const { return error_; }
  Tap& tap() { return *tap_; }
  Traffic& traffic() { return *traffic_; }
  Judge& judge() { return *judge_; }
  softhca::sim::Fabric& fabric() { return *fabric_; }
  Random& random() { return random_; }
  std::size_t size() const { return nodes_.size(); }
  conn::Transport& transport(std::size_t node) { return *nodes_[node].transport; }
  ops::Channel& channel(std::size_t from, std::size_t to);
  conn::Peer* peer(std::size_t from, std::size_t to) { return parties_[from].peers[to]; }
  SimService& service(std::size_t node) { return *nodes_[node].host->service; }
  TimeNs now() const { return fabric_->now(); }
  std::int64_t stat(std::size_t node, const char* name) const;
  std::int64_t sum(const char* name) const;  // over all nodes
  bool percent(unsigned chance) { return random_() % 100 < chance; }
  const std::vector<std::string>& gave_up(std::size_t node) const { return nodes_[node].gave_up; }
  // What it said when it gave up on itself.
  const std::vector<std::string>& own_ends(std::size_t node) const { return nodes_[node].own_ends; }

  void introduce(std::size_t a, std::size_t b);
  void at(TimeNs delay, std::function<void()> what);
  // As if every connection had exchanged `count` SENDs in each direction; all are connected and
  // quiet.
  void set_sequence(std::uint64_t count);
  void nap(std::size_t node, TimeNs time);  // its application does not call into mend

  // Everybody acts once, in random order; false: nobody had anything to do.
  bool round();
  // Rounds, and time where it is needed, until done() or for `limit` of virtual time; whether
  // done() came true.
  bool run_until(const std::function<bool()>& done, TimeNs limit);
  void run_for(TimeNs time);
  bool finish_traffic(TimeNs limit = 60 * conn::kSecond);
  // Closes everybody in good order and checks what must hold then.
  void close_and_check();
  // finish_traffic, close_and_check and the judge; the complaints, one a line, empty if all is
  // well.
  std::string verdict();

 private:
  struct Node {
    std::unique_ptr<SimHost> host;
    std::unique_ptr<conn::Transport> transport;
    std::unique_ptr<Fiber> app;  // a call that blocks: Transport::close()
    std::vector<std::string> gave_up, own_ends;
    TimeNs asleep_until = 0;
  };
  class Time final : public Clock {
   public:
    explicit Time(World& world) : world_(world) {}
    std::chrono::nanoseconds now() const override;
    void pause(std::chrono::nanoseconds time) const override;

   private:
    World& world_;
  };

  void create_node(const conn::Params& params);
  void register_arena(std::size_t node);
  bool act(std::size_t node, unsigned part);
  bool run_events();
  bool everybody_idle();
  TimeNs next_time() const;
  void pass_time(TimeNs limit_at);
  static void on_receive(void* from, std::uint8_t tag, std::span<const std::byte> payload);

  Random random_;
  Time time_;
  std::string error_;
  std::unique_ptr<softhca::sim::Fabric> fabric_;
  std::unique_ptr<Tap> tap_;
  std::deque<Party> parties_;
  std::unique_ptr<Traffic> traffic_;
  std::unique_ptr<Judge> judge_;
  std::multimap<TimeNs, std::function<void()>> events_;
  struct UpcallContext {
    World* world;
    std::size_t node;
  };
  std::deque<UpcallContext> upcalls_;
  std::deque<Node> nodes_;
};

}  // namespace mend::sim
