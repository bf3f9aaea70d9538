// Traffic: checkable operations between simulated processes, and the record of what became of them.
// Every operation has memory of its own whose content is known at any time: a put's target is
// overwritten by its owner once a later message has told about it, a put's source and a get's
// landing buffer once their callback has run; whatever changes after that was done by a repetition
// that should not have been.
//
// Thread contract: one thread. Invariant: complaints() is empty as long as every promise held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ops/request.h"
#include "plugin/conn/transport.h"

namespace mend::sim {

constexpr std::size_t kArena = std::size_t{256} << 10;

// What one process can be asked to do; the world fills it in.
struct Party {
  conn::Transport* transport = nullptr;
  std::vector<conn::Peer*> peers;  // by node; null for itself
  std::map<const conn::Peer*, std::size_t> node_of;
  std::vector<std::byte> arena;
  std::size_t arena_used = 64;  // the first word is the counter for atomics
  conn::Region region;

  ops::Channel& to(std::size_t peer) const { return transport->channel(peers[peer], RailId{0}); }
};

class Traffic {
 public:
  explicit Traffic(std::deque<Party>& parties);
  ~Traffic() = default;
  Traffic(const Traffic&) = delete;
  Traffic& operator=(const Traffic&) = delete;

  void send(std::size_t from, std::size_t to, std::uint32_t bytes);
  void put(std::size_t from, std::size_t to, std::uint32_t bytes);
  void get(std::size_t from, std::size_t to, std::uint32_t bytes);
  void add(std::size_t from, std::size_t to);

  void on_receive(std::size_t at, std::size_t from, std::span<const std::byte> payload);

  bool all_done() const { return delivered_ == sent_ && finished_ == started_; }
  std::uint64_t submitted() const { return sent_ + started_; }
  std::uint64_t finished() const { return delivered_ + finished_; }
  std::uint64_t sent(std::size_t from, std::size_t to) const;
  void check_memory();  // at the end: everything is still as its owner left it

  // Which put wrote there, and which message tells about it; for the judge.
  struct PutName {
    std::size_t from = 0, to = 0;
    std::uint64_t notice = 0;  // number of the first SEND submitted behind it
  };
  const PutName* put_at(std::size_t node, std::uint64_t address) const;

  void complain(std::string what);
  const std::vector<std::string>& complaints() const { return complaints_; }

 private:
  using Pair = std::pair<std::size_t, std::size_t>;
  struct Rdma {
    ops::RdmaOp op;
    Traffic* traffic = nullptr;
    PutName name;
    std::uint64_t number = 0;
    std::span<std::byte> source, target;  // of a get: the remote and the landing buffer
    int callbacks = 0;
    bool told = false;
  };
  struct Atomic {
    ops::AmoCall call;
    Traffic* traffic = nullptr;
    std::size_t to = 0;
    int callbacks = 0;
  };
  struct Flow {
    std::uint64_t sent = 0, delivered = 0;
    std::deque<std::uint32_t> lengths;  // of what is under way
    std::deque<Rdma*> untold;           // puts that no message has told about yet
  };

  std::span<std::byte> room(std::size_t node, std::uint32_t bytes);
  Rdma& new_rdma(std::size_t from, std::size_t to, std::uint32_t bytes, bool is_put);
  static void rdma_done(ops::RdmaOp& op);
  static void atomic_done(ops::AmoCall& call);
  void tell(Flow& flow, std::uint64_t number);

  std::deque<Party>& parties_;
  std::map<Pair, Flow> flows_;
  std::deque<Rdma> puts_, gets_;
  std::deque<Atomic> atomics_;
  std::map<std::pair<std::size_t, std::uint64_t>, Rdma*> put_by_target_;
  std::map<std::size_t, std::set<std::uint64_t>> results_;  // of atomics, by target
  std::uint64_t sent_ = 0, delivered_ = 0, started_ = 0, finished_ = 0;
  std::vector<std::string> complaints_;
};

}  // namespace mend::sim
