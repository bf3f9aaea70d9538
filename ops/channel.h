// Channel: the data side of one connection. It owns the op log (which is the submission queue, the posting order and the
// replay list in one), the send window, sequence numbers and acknowledgements, over whichever QP the connection layer
// has attached. It never creates, modifies or destroys a QP.
//
// Thread contract: every member is safe from any thread (one leaf spin lock per channel, uncontended on the fast path, never
// held over a callback). submit functions never refuse and never block.
// Invariants: I1, I5, I6, I8 of docs/protocol.md section 2; posting order = log order = replay order.
#pragma once

#include <cstdint>
#include <memory>

#include "ops/request.h"
#include "plugin/verbs/types.h"

struct ibv_qp;
struct ibv_wc;

namespace mend::ops {

class Poller;

struct ChannelConfig {
  std::uint32_t window = 128;        // SENDs in flight beyond the peer's ack, both directions agree by config
  std::uint32_t send_depth = 128;    // WRs of the QP usable for the log; one more is reserved for acks, one for beacon/probe
  std::uint32_t signal_every = 16;   // a SEND is signalled every so many WRs (puts and gets always are)
  std::uint32_t max_inline = 0;      // bytes including the header
  std::uint64_t max_message = 1u << 30;  // bytes per WR (device max_msg_sz, at most 1 GiB)
  std::uint32_t max_rd_atomic = 1;   // gets in flight
};

// A QP as the channel sees it. Lives in the connection layer; valid from attach() until detach() returned.
struct Lane {
  ibv_qp* qp = nullptr;
  Qpn qpn;
  Epoch epoch;
  RailId local_rail;   // index into LocalKeys (protection domain of that rail)
  RailId remote_rail;  // index into RemoteKeys
  std::uint64_t ack_cell_addr = 0;  // the peer's ack cell
  Rkey ack_cell_rkey;
};

// What a side reports in REQ/REP, sampled only after the fence (rule F1).
struct TxRxProgress {
  Seq rx_next;   // next seq I expect
  Seq tx_acked;  // everything before it was acknowledged to me
  Seq tx_next;   // next seq I will assign
};

enum class ReplayVerdict : std::uint8_t { Ok, DataLoss, Corrupt };  // rule F7
enum class [[nodiscard]] RxVerdict : std::uint8_t { Deliver, Consumed, Duplicate, Gap, OtherEpoch };

// Events for the connection layer; called with no lock held, from whichever thread noticed; must not block.
struct ChannelEvents {
  void* context = nullptr;
  void (*wanted)(void*) = nullptr;                                   // first submission while no lane is up
  void (*link_lost)(void*, Epoch, int wc_status, std::uint32_t vendor_err) = nullptr;  // a completion with error, or a gap (status -1)
  void (*log_empty)(void*, Epoch) = nullptr;                         // Replaying finished: everything submitted before is done
  void (*first_receive)(void*, Epoch) = nullptr;                     // first RC receive on this epoch (rule F5)
};

struct ChannelStats {
  std::uint64_t sends = 0, recvs = 0, puts = 0, gets = 0, atomics = 0, bytes_sent = 0, bytes_received = 0;
  std::uint64_t replayed = 0, replayed_bytes = 0, in_doubt = 0, dup_rx = 0, acks_written = 0, window_full = 0, sq_full = 0;
};

class Channel {
 public:
  Channel(Poller& home, const ChannelConfig& config, const ChannelEvents& events);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // --- submission, from application threads -------------------------------------------------------------------
  void send(Frag& frag, std::uint8_t tag, bool want_callback);  // frag.length payload bytes are in place
  void rdma(RdmaOp& op);
  void atomic(AmoCall& call);
  std::uint64_t held_bytes() const;   // payload accepted and not yet done (bound for bulk traffic)
  bool quiet() const;                 // log empty, nothing to acknowledge, no callback due

  // --- completions, from the Poller (inside its poll lock) ------------------------------------------------------
  void on_send_completion(const ibv_wc& wc);
  RxVerdict on_receive(const DataHeader& header, std::uint32_t payload_bytes, const std::byte* payload, Epoch lane_epoch);

  // --- acknowledgements -----------------------------------------------------------------------------------------
  void on_peer_ack(Seq rx_next);        // from a header, the ack cell or a heartbeat; monotone, takes the max
  void check_ack_cell();                // cheap; called by progress when the window runs short or frags are held
  void write_ack_if_owed(bool force);   // ack cell write (reserved SQ slot); force: idle or timer
  std::uint64_t* ack_cell();            // memory the peer writes its rx_next into (registered by the caller)

  // --- lane control, from the connection layer --------------------------------------------------------------------
  void attach(const Lane& lane);                         // QP is RTR or RTS; receives are counted, nothing is posted
  ReplayVerdict start(Seq peer_rx_next);                 // enter Replaying: apply S1/P1/P2/G1, post in log order
  void stop_posting();                                   // first step of the fence; returns when no post is in progress
  TxRxProgress detach();                                 // after RESET: wire holds of this lane end, the lane is gone
  TxRxProgress progress_now() const;                     // for heartbeats (not for replay)
  Epoch epoch() const;

  ChannelStats stats() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;  // (the implementer may flatten this for the hot path)
};

}  // namespace mend::ops
