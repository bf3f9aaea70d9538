// Tap: sits between mend and the device of every simulated process, as a verbs table and as the
// post and poll functions of the contexts. It knows which request of which queue pair carried what,
// and does to requests, completions, datagrams and calls what a test's rules say.
//
// Thread contract: one thread, one tap at a time. Invariant: with no rule set, the device behaves
// as if the tap were not there.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ops/wire.h"
#include "plugin/conn/ctl_wire.h"
#include "plugin/verbs/api.h"
#include "softhca/engine/sim.h"

namespace mend::sim {

// What happens to a request on a connected queue pair.
enum class Fate : std::uint8_t {
  Pass,
  LoseRequest,  // never executed; the requester's retries run out
  LoseAck,      // executed, as is what follows for a while; the requester's retries run out all the
                // same, and it learns of none of them
  Refuse,       // ibv_post_send returns EIO, the queue pair goes to ERR
};
// What happens to a control datagram.
struct UdFate {
  unsigned copies = 1;            // 0: lost
  std::uint64_t delay_ns = 0;     // of all copies
  std::uint64_t again_after = 0;  // not 0: one more copy, so much later
};

// A request as it was posted.
struct Request {
  std::size_t node = 0;
  std::size_t peer = 0;
  std::uint32_t qpn = 0;
  std::uint64_t wr_id = 0;
  ibv_wr_opcode opcode = IBV_WR_SEND;
  std::uint32_t length = 0;
  std::uint64_t remote_addr = 0;
  ops::DataHeader header{};  // of a SEND
};
// A packet of a queue pair that the network kept.
struct Ghost {
  std::uint32_t src_qpn = 0, dest_qpn = 0, psn = 0;
  std::uint64_t dest_life = 0;  // of the queue pair it was meant for
};

enum class Call : std::uint8_t { CreateQp, ToErr, ToReset, ToInit, ToRtr, ToRts, CreateAh };

class Tap {
 public:
  explicit Tap(softhca::sim::Fabric& fabric);
  ~Tap();
  Tap(const Tap&) = delete;
  Tap& operator=(const Tap&) = delete;

  const verbs::Api& api() const { return api_; }
  ibv_context* context(std::size_t node) const { return contexts_[node]; }

  // The rules; empty: nothing happens.
  std::function<Fate(const Request&)> on_request;
  std::function<UdFate(std::size_t node, const conn::CtlMessage&)> on_datagram;
  std::function<int(std::size_t node, Call)> on_call;  // errno to fail with
  std::function<bool(std::size_t node, ibv_event_type)> drop_event;
  // Who watches: every control message as it is sent, and every request that its target was never
  // connected for.
  std::function<void(std::size_t node, const conn::CtlMessage&)> saw_message;
  std::function<void(const Request&)> saw_early;
  // Time for delayed datagrams, and who makes a process look at its event descriptor.
  std::function<void(std::uint64_t delay, std::function<void()>)> later;
  std::function<void(std::size_t node, int fd)> wake;

  // From now on packet sequence numbers are such that they wrap soon.
  void wrap_psn(bool wanted) { wrap_psn_ = wanted; }

  // --- things that happen by themselves ---
  std::vector<ibv_qp*> live_qps(std::size_t node) const;  // connected ones in RTR or RTS
  ibv_qp* any_qp(std::size_t node) const;                 // connected once; null: none
  ibv_qp* partner(const ibv_qp* qp) const;                // null: none, or not connected back
  void kill_qp(ibv_qp* qp);                               // to ERR, silently
  void raise(std::size_t node, ibv_event_type type, ibv_qp* qp = nullptr);
  void hold_completions(std::size_t node, std::uint64_t until) { held_until_[node] = until; }
  std::uint64_t held_polls() const { return held_polls_; }  // that found nothing for this reason
  // Whether a packet that the network kept would now be accepted by another queue pair than the one
  // it was meant for.
  bool ghost_hits() const;

 private:
  struct QpInfo {
    ibv_qp* qp = nullptr;
    std::size_t node = 0;
    std::uint32_t dest_qpn = 0;
    std::uint64_t life = 0;  // a new number with every connection
    ibv_cq* cq = nullptr;
    bool deaf = false;            // acknowledgements to it are lost
    std::deque<ibv_wc> withheld;  // what it does not know yet
  };
  using WrKey = std::pair<std::uint32_t, std::uint64_t>;

  std::size_t node_of(const ibv_context* context) const { return node_of_.at(context); }

  static ibv_context* open_device(ibv_device*);
  static ibv_qp* create_qp(ibv_pd*, ibv_qp_init_attr*);
  static int modify_qp(ibv_qp*, ibv_qp_attr*, int);
  static int destroy_qp(ibv_qp*);
  static ibv_ah* create_ah(ibv_pd*, ibv_ah_attr*);
  static int get_async_event(ibv_context*, ibv_async_event*);
  static void ack_async_event(ibv_async_event*);
  static int post_send(ibv_qp*, ibv_send_wr*, ibv_send_wr**);
  static int poll_cq(ibv_cq*, int, ibv_wc*);

  int post_connected(ibv_qp* qp, ibv_send_wr& wr, ibv_send_wr** bad);
  int post_datagram(ibv_qp* qp, ibv_send_wr& wr, ibv_send_wr** bad);
  void repeat_datagram(ibv_qp* qp, const ibv_send_wr& wr, std::uint64_t delay);
  void remember_ghost(ibv_qp* qp);
  void make_deaf(QpInfo& info);
  void learn(QpInfo& info);  // a deaf one: its retries have run out
  int filter(ibv_cq* cq, ibv_wc* entries, int count);
  bool accepts(const Ghost& ghost) const;
  bool is_early(const Request& request) const;
  Request describe(ibv_qp* qp, const ibv_send_wr& wr) const;

  softhca::sim::Fabric& fabric_;
  verbs::Api api_;
  int (*real_post_)(ibv_qp*, ibv_send_wr*, ibv_send_wr**) = nullptr;
  int (*real_poll_)(ibv_cq*, int, ibv_wc*) = nullptr;
  std::vector<ibv_context*> contexts_;
  std::unordered_map<const ibv_context*, std::size_t> node_of_;
  std::unordered_map<std::uint32_t, QpInfo> qps_;                // connected ones
  std::set<std::pair<std::uint32_t, std::uint32_t>> connected_;  // from, to: ever
  std::set<const ibv_cq*> data_cqs_;
  std::set<std::uint32_t> datagram_qps_;
  std::vector<std::uint64_t> held_until_;
  std::uint64_t held_polls_ = 0;
  std::set<WrKey> doomed_;
  std::map<const ibv_cq*, std::deque<ibv_wc>> released_;  // completions that go before the device's
  bool wrap_psn_ = false;
  std::uint64_t lives_ = 0;
  std::vector<Ghost> ghosts_;
  std::deque<std::pair<std::size_t, ibv_async_event>> raised_;
  std::vector<ibv_async_event> raised_unacked_;
};

}  // namespace mend::sim
