// Rail: one port of one device, with the queues all connections on it share: completion queue,
// receive buffers, poller.
//
// Thread contract: create/destroy from set-up code; port() from any thread; refresh_port(),
// reserve_qps() and release_qps() from the worker thread (or set-up code), never concurrently with
// each other. Invariants: receive buffers >= 2 x reserved QPs; CQ entries >= cq_depth() of the
// reserved QPs. A QP exists only under a reservation.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "plugin/conn/nic.h"
#include "plugin/conn/params.h"
#include "plugin/conn/rail_sizes.h"
#include "plugin/conn/transport.h"
#include "plugin/verbs/device.h"
#include "plugin/verbs/error.h"
#include "plugin/verbs/qp_attr.h"
#include "plugin/verbs/types.h"
#include "plugin/verbs/unique.h"

namespace mend::ops {
class Poller;
class RecvPool;
}  // namespace mend::ops

namespace mend::conn {

// What is known of the port now; a value, taken anew by refresh_port() (GID, LID and MTU may move
// when a port comes back).
struct PortView {
  verbs::PortInfo info;
  verbs::GidEntry gid;  // all zero where the port has none (InfiniBand without GRH)
  verbs::PkeyChoice pkey;
  ibv_mtu mtu = IBV_MTU_1024;  // min of the port's active MTU and btl_mend_mtu
};

// A port of a peer, as REQ/REP carries it.
struct RemotePort {
  verbs::Gid gid{};
  std::uint16_t lid = 0;
  friend bool operator==(const RemotePort&, const RemotePort&) = default;
};

class Rail {
 public:
  // peers: how many processes the job has besides this one, where known (sizes only; more may
  // come). Errors name the limit; the port must be active (ENETDOWN otherwise).
  static Result<std::unique_ptr<Rail>> create(Nic& nic, std::uint8_t port, RailId id,
                                              const Params& params, std::uint32_t peers);
  ~Rail();
  Rail(const Rail&) = delete;
  Rail& operator=(const Rail&) = delete;

  RailId id() const { return id_; }
  Nic& nic() const { return nic_; }
  const verbs::Api& api() const { return nic_.api(); }
  const RailInfo& info() const { return info_; }  // numa_node is filled in by the caller (topo)
  RailInfo& info() { return info_; }
  const RailSizes& sizes() const { return sizes_; }
  ibv_cq* cq() const { return cq_.get(); }
  ibv_srq* srq() const { return srq_.get(); }  // null: the device has none
  ops::RecvPool& recv_pool() const { return *recv_pool_; }
  ops::Poller& poller() const { return *poller_; }

  PortView port() const;
  Result<void> refresh_port();
  bool port_active() const { return port_active_.load(std::memory_order_acquire); }
  void set_port_active(bool active) { port_active_.store(active, std::memory_order_release); }

  // Its device or one of its shared queues is dead: no queue pair of it will work again.
  bool lost() const { return lost_.load(std::memory_order_acquire) || nic_.fatal(); }
  void set_lost() { lost_.store(true, std::memory_order_release); }

  // Room for one more QP: grows receive buffers and CQ as the rules demand. Refused (code ENOMEM or
  // EINVAL, the message names the rule and the limit) before anything is created; the caller backs
  // off.
  Result<void> reserve_qps(std::uint32_t count);
  void release_qps(std::uint32_t count);
  std::uint32_t reserved_qps() const { return reserved_qps_; }

  // The device tells once when fewer buffers are free than this; watch_srq() arms it (again).
  std::uint32_t low_watermark() const;
  void watch_srq();
  // After it told, on the worker: posts more buffers. False: there are to be no more.
  bool relieve_srq();
  std::string srq_holders() const;  // who has the buffers, for a person

  // The verbs parameters of a connection to `remote` from this rail, timers and path filled from
  // the parameters; the caller adds dest_qpn, PSNs, mtu (min of both sides) and rd_atomic.
  verbs::QpParams qp_params(const RemotePort& remote) const;

 private:
  struct Memory;  // registrations of the receive buffers

  Rail(Nic& nic, RailId id, const Params& params, std::uint32_t peers);
  Result<PortView> look_at_port(std::uint8_t port) const;
  Result<void> create_queues();
  Result<void> create_receive_buffers();
  Result<void> probe_qp();
  Result<void> make_room(std::uint32_t qps);
  Result<void> make_cq_room(std::uint32_t qps, std::uint32_t buffers);
  Result<void> grow_receive_buffers(std::uint32_t depth);
  std::uint64_t cq_entries_for(std::uint32_t qps, std::uint32_t recv_buffers) const;
  void fill_info();

  Nic& nic_;
  const RailId id_;
  const Params params_;
  const std::uint32_t peers_;
  RailInfo info_;
  RailSizes sizes_;
  mutable std::mutex port_mutex_;  // guards port_
  PortView port_;
  std::atomic<bool> port_active_{false};
  std::atomic<bool> lost_{false};
  std::uint32_t reserved_qps_ = 0;
  std::uint32_t first_recv_buffers_ = 0;  // posted at the start
  // Destroyed from the last to the first: the device lets go of the buffers before they are freed.
  std::unique_ptr<Memory> memory_;
  std::unique_ptr<ops::RecvPool> recv_pool_;
  verbs::Cq cq_;
  verbs::Srq srq_;
  std::unique_ptr<ops::Poller> poller_;
};

}  // namespace mend::conn
