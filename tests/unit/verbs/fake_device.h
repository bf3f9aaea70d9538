// FakeDevice: a whole RDMA device behind the function table, in one thread's memory: objects with
// use counts, queue pairs with states and flushes, datagrams and messages between its own QPs,
// async events, and calls that fail on demand.
//
// It is for what the embedded device cannot be made to do at will: a refusal at the k-th call, a
// device that shrinks what it grants, one that keeps the completions of a reset QP, one that never
// raises LAST_WQE_REACHED.
//
// Thread contract: one mutex over everything; at most one FakeDevice at a time (the C calls find it
// through a global).
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "plugin/verbs/api.h"
#include "plugin/verbs/gid.h"

namespace mend::test {

struct FakeModify {
  std::uint32_t qpn = 0;
  ibv_qp_state from = IBV_QPS_RESET, to = IBV_QPS_RESET;
  int mask = 0;
  ibv_qp_attr attr{};
};

class FakeDevice {
 public:
  FakeDevice();
  ~FakeDevice();
  FakeDevice(const FakeDevice&) = delete;
  FakeDevice& operator=(const FakeDevice&) = delete;

  // The call named `name` (without ibv_) fails with `code` `times` times after `skip` successes.
  void fail(const std::string& name, int code, int times = 1, int skip = 0);
  int calls(const std::string& name) const;  // how often it was made, failures included

  verbs::Api api;
  // What the device says of itself; change before opening.
  ibv_device_attr limits{};
  ibv_port_attr port{};
  std::vector<verbs::GidEntry> gids;
  std::vector<std::uint16_t> pkeys;
  // How it behaves.
  std::uint32_t inline_limit = 64;  // create_qp above it: EINVAL
  std::uint32_t wr_limit =
      1024;  // create_qp above it: ENOMEM (below max_qp_wr: a device short of memory)
  bool raises_last_wqe = true;  // hands LAST_WQE_REACHED to last_wqe_hook at ERR
  void (*last_wqe_hook)(void* context, std::uint32_t qpn) = nullptr;
  void* hook_context = nullptr;
  bool reset_keeps_completions = false;  // as some software devices do
  bool loses_beacons = false;            // no completion for what is posted in ERR
  bool datagrams_lost = false;
  bool can_resize = true;
  bool stuck_state = false;  // query_qp never shows a change
  std::uint32_t next_qpn = 0x100;
  std::vector<std::uint32_t> qpns_to_reuse;  // given out first

  // What happened.
  std::vector<FakeModify> modifies;
  std::map<std::string, int> live;  // objects by kind: "qp", "cq", ...
  int events_unacked = 0;

  void raise(const ibv_async_event& event);  // makes async_fd readable
  ibv_qp_state state(std::uint32_t qpn) const;
  void break_qp(std::uint32_t qpn);  // to ERR by itself, flushing
  // A message lands on the QP's receive queue. False: there was no buffer.
  bool push_receive(std::uint32_t qpn, std::span<const std::byte> bytes);
  std::size_t posted_receives(const ibv_srq* srq) const;

 private:
  friend struct FakeCalls;
  struct Cq;
  struct Srq;
  struct Qp;
  struct Channel;
  struct Fault {
    int code, times, skip;
  };

  bool should_fail(const char* name);  // sets errno
  int failure(const char* name);       // errno value, 0: go on
  Qp* find(std::uint32_t qpn) const;
  void complete(Cq* cq, const ibv_wc& wc);
  void flush(Qp& qp);
  bool deliver(Qp& to, const void* data, std::uint32_t bytes, std::uint32_t from, bool grh);

  mutable std::mutex mutex_;
  std::map<std::string, std::deque<Fault>> faults_;
  std::map<std::string, int> calls_;
  std::map<std::uint32_t, Qp*> qps_;
  std::deque<ibv_async_event> events_;
  ibv_device device_{};
  ibv_device* list_[2] = {};
  int async_pipe_[2] = {-1, -1};
};

}  // namespace mend::test
