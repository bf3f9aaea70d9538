// A fake device behind the ibv_context ops table: reliable connected QPs, CQs and receive queues in
// one process, enough for ibv_post_send, ibv_poll_cq, ibv_post_srq_recv and ibv_post_recv. It is
// strict where leniency would hide bugs (SQ slots come back only with a polled completion, payload
// of a non-inline send is fetched when the request executes, invalid fields of failed completions
// are scribbled) and it does nothing by itself: a test decides when requests execute and fail.
//
// Thread contract: every call is serialised by one lock of the fabric.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <set>
#include <vector>

namespace mend::test {

struct FakeQp;

struct FakeCq {
  ibv_cq base{};  // first: ibv_cq* is cast to FakeCq*
  std::deque<ibv_wc> entries;
  std::deque<FakeQp*> retire;  // parallel to entries: whose SQ slots this entry gives back
  std::deque<std::uint32_t> retire_to;
};

struct FakeQp;

struct FakeSrq {
  ibv_srq base{};
  std::deque<ibv_recv_wr> posted;
  std::deque<ibv_sge> sges;
  std::uint32_t capacity = 0xffffffff;
  std::set<FakeQp*> refused;  // their oldest SEND found nothing posted here
};

struct FakeWr {
  ibv_send_wr wr{};
  ibv_sge sge{};
  std::vector<std::byte> inline_data;
  std::uint32_t position = 0;
};

struct FakeQp {
  ibv_qp base{};
  FakeCq* cq = nullptr;
  FakeSrq* srq = nullptr;  // shared, or the QP's own receive queue
  FakeQp* peer = nullptr;
  std::uint32_t sq_capacity = 0;
  std::uint32_t max_inline = 0;
  std::uint32_t posted = 0;   // positions handed out
  std::uint32_t retired = 0;  // positions given back by polled completions
  bool error = false;
  bool reset = false;           // nothing is accepted or executed any more
  bool automatic = true;        // requests execute when they are posted
  int refuse_post = 0;          // errno for the next posts
  std::uint64_t peak = 0;       // most SQ slots in use
  std::deque<FakeWr> waiting;   // posted, not executed
  std::deque<FakeWr> executed;  // executed, completion held back (hold_completions)
  bool hold_completions = false;
};

struct FakeFabric {
  FakeFabric();
  ~FakeFabric() = default;
  FakeFabric(const FakeFabric&) = delete;
  FakeFabric& operator=(const FakeFabric&) = delete;

  ibv_context context{};
  std::recursive_mutex lock;
  std::uint32_t next_qpn = 100;
  std::function<void()> on_post;  // called while a send is posted

  void init(FakeCq& cq);
  void init(FakeSrq& srq);
  void connect(FakeQp& a, FakeQp& b);
  void init(FakeQp& qp, FakeCq& cq, FakeSrq& srq, std::uint32_t sq_capacity,
            std::uint32_t max_inline);

  // Executes the oldest waiting request at the peer; false: none, or the peer has no receive buffer
  // (RNR).
  bool execute_one(FakeQp& qp);
  void execute_all(FakeQp& qp);
  void complete_held(
      FakeQp& qp, std::size_t count);  // delivers held completions of the oldest executed requests
  // The link breaks: the oldest request without completion fails with `status`, everything else is
  // flushed. Both QPs are in the error state afterwards.
  void fail(FakeQp& qp, ibv_wc_status status);
  void flush(FakeQp& qp);
  void reset(FakeQp& qp);  // the fence: nothing of this QP executes or completes any more
};

}  // namespace mend::test
