// Channel: the data side of one connection. It owns the op log (which is the submission queue, the
// posting order and the replay list in one), the send window, sequence numbers and
// acknowledgements, over whichever QP the connection layer has attached. It never creates, modifies
// or destroys a QP.
//
// Thread contract: every member is safe from any thread (one leaf spin lock per channel,
// uncontended on the fast path, never held over a callback). submit functions never refuse and
// never block. Lock order: poll lock, channel lock, pool lock. Invariants: I1, I5, I6, I8 of
// docs/protocol.md section 2; posting order = log order = replay order.
//
// Sequence numbers are counted in 64 bits here and travel as their low 32 bits; the ack cell
// carries all 64.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <vector>

#include "ops/amo_table.h"
#include "ops/op_fault.h"
#include "ops/op_log.h"
#include "ops/request.h"
#include "ops/spin_lock.h"
#include "plugin/verbs/types.h"

namespace mend::ops {

class Poller;
class FragPool;

// The two words of an acknowledgement by RDMA WRITE. The owner provides the memory: it must be
// registered for remote write (the peer writes from_peer) and, where the device has no inline
// sends, for local reads under ack_keys.
struct alignas(64) AckCell {
  std::uint64_t from_peer = 0;  // the peer's count of SENDs received from us
  std::uint64_t to_peer = 0;    // source of our own ack writes
};

struct ChannelConfig {
  // SENDs in flight beyond the peer's ack; both sides have the same.
  std::uint32_t window = 128;
  // WRs of the QP usable for the log; the QP has one more for acks and one for beacon or probe.
  std::uint32_t send_depth = 128;
  // A SEND is signalled every so many WRs (puts and gets always are).
  std::uint32_t signal_every = 16;
  std::uint32_t max_inline = 0;           // bytes including the header
  std::uint64_t max_message = 1u << 30;   // bytes per WR (device max_msg_sz, at most 1 GiB)
  std::uint32_t max_payload = 32 * 1024;  // payload bytes of the peer's receive buffers
  AckCell* ack_cell = nullptr;            // required; outlives the channel and its last QP
  const LocalKeys* ack_keys = nullptr;    // of ack_cell; needed where max_inline < 8
  FragPool* frags = nullptr;              // for atomics; capacity >= sizeof(AmoRequest)
};

// A QP as the channel sees it. Lives in the connection layer; valid from attach() until detach()
// returned.
struct Lane {
  ibv_qp* qp = nullptr;
  Qpn qpn;
  Epoch epoch;
  RailId local_rail;                // index into LocalKeys (protection domain of that rail)
  RailId remote_rail;               // index into RemoteKeys
  std::uint64_t ack_cell_addr = 0;  // the peer's AckCell::from_peer
  Rkey ack_cell_rkey;
};

// What a side reports in REQ/REP, sampled only after the fence (rule F1).
struct TxRxProgress {
  Seq rx_next;   // next seq I expect
  Seq tx_acked;  // everything before it was acknowledged to me
  Seq tx_next;   // next seq I will assign
};

enum class ReplayVerdict : std::uint8_t { Ok, DataLoss, Corrupt };  // rule F7
enum class [[nodiscard]] RxVerdict : std::uint8_t{Deliver, Consumed, Duplicate, Gap, OtherEpoch};

enum class AckTick : std::uint8_t {
  Receiving,  // messages came since the last tick, or somebody uses the channel now
  Silent,     // none came; what was owed is written if it can be
  Done        // nothing has been owed for a while
};

// Statuses of link_lost that are no ibv_wc_status.
constexpr int kStatusGap = -1;         // a receive with seq > rx_next
constexpr int kStatusPostFailed = -2;  // ibv_post_send refused; vendor_err is its errno

// What cannot be repaired by a new QP. Counted, reported once per occurrence, never undefined
// behaviour.
enum class Fault : std::uint8_t {
  UnknownKind,     // detail: the kind byte
  ShortMessage,    // detail: its bytes
  MessageTooLong,  // submitted payload exceeds the peer's buffers; detail: its bytes; the Frag is
                   // not sent
  BadAtomic,      // the peer asked for an atomic that is misaligned, of unknown kind or outside its
                  // region; detail: address
  AtomicRefused,  // the peer refused ours (its BadAtomic); detail: address
  UnknownReply,   // reply to no atomic of ours; detail: its id
  NoInlineNoKeys,  // a put without keys that cannot go inline; detail: its bytes
};
const char* to_string(Fault fault);

// Events for the connection layer; called with no lock held, from whichever thread noticed; must
// not block.
struct ChannelEvents {
  void* context = nullptr;
  void (*wanted)(void*) = nullptr;  // first submission while no lane is attached
  // Once per epoch: the first completion with error (non-flush if the batch has one), or one of the
  // statuses above.
  void (*link_lost)(void*, Epoch, int wc_status, std::uint32_t vendor_err) = nullptr;
  // Replaying finished: everything submitted before start() is done.
  void (*log_empty)(void*, Epoch) = nullptr;
  void (*first_receive)(void*, Epoch) = nullptr;  // first RC receive on this epoch (rule F5)
  // Messages arrive, so acknowledgements will be owed: ack_tick() is to be called every few
  // milliseconds until it says Done.
  void (*receiving)(void*) = nullptr;
  void (*fault)(void*, Fault, std::uint64_t detail) = nullptr;
  // May the peer run an atomic on these bytes? Called inside the poll critical section: no
  // blocking. Null: no check.
  bool (*may_access)(void*, std::uint64_t address, std::uint32_t bytes, Rkey rkey) = nullptr;
};

struct ChannelStats {
  std::uint64_t sends = 0, recvs = 0, puts = 0, gets = 0, atomics = 0, bytes_sent = 0,
                bytes_received = 0;
  std::uint64_t replayed = 0, replayed_bytes = 0, in_doubt = 0, dup_rx = 0, acks_written = 0,
                window_full = 0, sq_full = 0;
  std::uint64_t other_epoch = 0;  // receives of an epoch that is over (dropped)
  std::uint64_t faults = 0;
};

class alignas(64) Channel {
 public:
  Channel(Poller& home, const ChannelConfig& config, const ChannelEvents& events);
  ~Channel();  // lane detached, Poller::forget() called
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // --- submission, from application threads ---
  // frag.length payload bytes are in place, frag.held == kHoldUser. With want_callback frag.sent
  // runs once from progress after the first post, and the caller keeps its hold at least until
  // then.
  void send(Frag& frag, std::uint8_t tag, bool want_callback);
  // The same without callback, and the caller's hold goes with the call.
  void send_owned(Frag& frag, std::uint8_t tag);
  void rdma(RdmaOp& op);
  void atomic(AmoCall& call);
  // Payload of SENDs accepted and not yet acknowledged: the bound for bulk traffic. Takes the lock.
  std::uint64_t held_bytes() const;
  // Nothing undone in the log, no atomic unanswered, nothing to acknowledge (callbacks: see
  // Poller).
  bool quiet() const;
  // At most so many SENDs beyond the peer's ack from now on, at least 1, never more than the
  // configured window; what was posted before stays. From the connection layer.
  void limit_window(std::uint32_t most);
  bool posting() const {  // a lane is up and may post (Replaying or Active)
    return state_.load(std::memory_order_relaxed) == LaneState::Posting;
  }

  // --- completions, from the Poller (inside its poll lock) ---
  void on_send_completion(const ibv_wc& wc);
  void on_receive_error(const ibv_wc& wc, Epoch lane_epoch);
  RxVerdict on_receive(const DataHeader& header, std::uint32_t payload_bytes,
                       const std::byte* payload, Epoch lane_epoch);
  void on_short_message(std::uint32_t bytes);
  bool events_pending() const { return events_pending_.load(std::memory_order_relaxed) != 0; }
  [[gnu::noinline]] void run_events();  // with no lock held

  // --- acknowledgements ---
  void on_peer_ack(Seq rx_next);  // from a header or a heartbeat; monotone, takes the max
  void check_ack_cell();  // cheap; called by progress when the window runs short or frags are held
  bool ack_owed() const { return rx_next_.load(std::memory_order_relaxed) != told_peer(); }
  // A zero-byte signalled RDMA WRITE in the SQ slot reserved for it, while the lane may post. wr_id
  // comes from Poller::make_beacon_wr_id(); one at a time. False: nothing was posted.
  bool post_probe(std::uint64_t wr_id);
  AckTick ack_tick();                  // service thread: the timer's rule of docs/protocol.md 1.7
  void write_ack_if_owed(bool force);  // ack cell write (reserved SQ slot); force: idle or timer

  // --- lane control, from the connection layer ---
  void attach(const Lane& lane);  // QP is RTR or RTS; receives are counted, nothing is posted
  ReplayVerdict start(Seq peer_rx_next);  // enter Replaying: apply S1/P1/P2/G1, post in log order
  void stop_posting();  // first step of the fence; returns when no post is in progress
  // After RESET: wire holds of this lane end, the lane is gone. fenced: the device is known to
  // touch nothing of it any more; else nothing of it is ever called back as failed.
  TxRxProgress detach(bool fenced = true);
  TxRxProgress progress_now() const;  // for heartbeats (not for replay)
  // The connection was given up: what is not done, and all that comes later, is called back as
  // failed once no lane is attached any more.
  void abandon();
  Epoch epoch() const { return Epoch{epoch_.load(std::memory_order_relaxed)}; }

  // --- what the connection layer's timer asks ---
  struct Waiting {
    Epoch epoch;
    std::uint32_t retired = 0;  // work requests that have left the send queue
    std::uint64_t acked = 0;    // SENDs that the peer has counted
    bool for_device = false;    // a request behind them will complete visibly
    bool for_peer = false;      // a SEND was posted that the peer has not counted
  };
  Waiting waiting() const;
  // The probe posted last completed with success: so did everything posted before it (R4).
  void probe_succeeded(Epoch epoch);
  // The next submission after a quiet time raises `wanted`, once.
  void fall_asleep();

  // --- one repair of a key or of registered memory, from the connection layer ---
  OpFault op_fault() const;  // what the status of the last link_lost was about
  void begin_repair();       // op_fault() has had its repair
  // What is not done and names keys.reg_id goes on with these, and so does what comes later.
  void renew_remote_keys(const RemoteKeys& keys);
  // What is not done and uses `old` on `rail` goes on with keys, which outlive it.
  void renew_local_keys(RailId rail, Lkey old, const LocalKeys& keys);

  ChannelStats stats() const;

 private:
  friend class Poller;
  friend struct ChannelTestAccess;

  // None -> Attached -> Posting -> Stopped -> None; detach() is legal in every state but Posting.
  enum class LaneState : std::uint8_t { None, Attached, Posting, Stopped };
  enum EventBit : std::uint32_t {
    kEvWanted = 1,
    kEvLost = 2,
    kEvLogEmpty = 4,
    kEvFirstRx = 8,
    kEvFault = 16,
    kEvReceiving = 32
  };
  struct PendingFault {
    Fault fault;
    std::uint64_t detail;
  };
  struct Reply {  // an atomic's result that waits for memory
    std::uint32_t id;
    AmoResponse body;
  };

  // All below are called with lock_ held unless they say otherwise.
  // channel_submit.cpp
  template <bool kCallback>
  bool send_fast(Frag& frag, std::uint8_t tag, std::uint8_t user_hold);
  // Takes the lock over and lets it go.
  [[gnu::noinline]] void send_slow(Frag& frag, std::uint8_t tag, bool want_callback,
                                   std::uint8_t user_hold);
  void push_sent(Frag& frag);
  [[gnu::cold, gnu::noinline]] void undo_fast_send(LogEntry& entry, int refused);
  void refill_fast_sends();
  [[gnu::noinline]] void submit_locked(Frag& frag, Kind kind, std::uint8_t tag, std::uint32_t aux,
                                       bool want_callback, std::uint8_t user_hold);
  void pump();
  [[gnu::noinline]] void pump_pending();
  bool post_send(LogEntry& entry);
  [[gnu::noinline]] bool post_rdma(LogEntry& entry);
  bool post(std::uint64_t wr_base, unsigned flags);
  void use_wr_for_sends();
  std::uint32_t signal_share(const Frag& frag) const;
  [[gnu::noinline]] bool window_refuses(LogEntry& entry, std::uint32_t distance);
  [[gnu::cold, gnu::noinline]] void note_replay(const LogEntry& entry);
  [[gnu::noinline]] void set_blocked(bool blocked);
  void need_attention() {
    if ((chores_ & kChoreAttention) != 0) [[unlikely]] {
      join_attention();
    }
  }
  [[gnu::noinline]] void do_chores();
  [[gnu::noinline]] void join_attention();
  [[gnu::cold, gnu::noinline]] void refuse_submission(Frag& frag, std::uint8_t user_hold);
  [[gnu::cold, gnu::noinline]] void want_lane();
  std::uint64_t told_peer() const {
    return ack_due_.load(std::memory_order_relaxed) - ack_threshold_;
  }
  void note_told(std::uint64_t rx_next) {
    ack_due_.store(rx_next + ack_threshold_, std::memory_order_relaxed);
  }
  void set_steady(bool steady) { special_ = (special_ & ~kNotSteady) | (steady ? 0 : kNotSteady); }
  bool can_post() const {
    return state_.load(std::memory_order_relaxed) == LaneState::Posting && !broken_;
  }

  // channel_ack.cpp
  void apply_ack(std::uint32_t ack);
  void accept_acked(std::uint64_t acked);
  void load_ack_cell();
  [[gnu::noinline]] void advance_done();
  void settle_acked(std::uint64_t acked);
  static void release_peer(Frag& frag);
  [[gnu::cold, gnu::noinline]] void settle_cursors();
  [[gnu::noinline]] void finish_piece(LogEntry& entry);
  void retire_rdma(LogEntry& entry);
  void drop_wire(LogEntry& entry);
  [[gnu::noinline]] void retire_to(std::uint32_t sq_position);
  [[gnu::noinline]] bool write_ack();
  bool look(bool long_idle);  // takes lock_; false: needs no more attention

  // channel_replay.cpp
  void settle_by_peer(std::uint64_t rx_next);
  void release_wire();

  // channel_abandon.cpp
  [[gnu::cold, gnu::noinline]] void fail_if_abandoned();
  void fail_send(const LogEntry& entry);
  void fail_piece(LogEntry& entry);
  void fail_atomics();

  // channel_repair.cpp
  [[gnu::cold, gnu::noinline]] void note_send_error(const ibv_wc& wc);
  void describe_fault(std::uint64_t position);
  [[gnu::cold, gnu::noinline]] void use_renewed_keys(RdmaOp& op) const;

  // channel.cpp
  [[gnu::cold, gnu::noinline]] void note_lost(int status, std::uint32_t vendor_err);
  [[gnu::cold, gnu::noinline]] void note_fault(Fault fault, std::uint64_t detail);
  void raise(std::uint32_t bits) {
    events_pending_.store(events_pending_.load(std::memory_order_relaxed) | bits,
                          std::memory_order_relaxed);
  }
  [[gnu::cold, gnu::noinline]] RxVerdict refuse_receive(const DataHeader& header, Epoch lane_epoch);

  // amo.cpp
  [[gnu::noinline]] void run_atomic(const DataHeader& header, std::uint32_t payload_bytes,
                                    const std::byte* payload);  // takes lock_
  [[gnu::noinline]] void finish_atomic(const DataHeader& header, std::uint32_t payload_bytes,
                                       const std::byte* payload);  // takes lock_
  bool submit_call(AmoCall& call);                                 // takes lock_
  bool submit_reply(const Reply& reply);                           // takes lock_
  void retry_waiting();                                            // takes lock_

  mutable SpinLock lock_;
  std::atomic<LaneState> state_{LaneState::None};
  bool broken_ = false;  // this lane had an error: nothing more is posted on it
  // What the next receive has to do besides being counted: join the Poller's list, report the first
  // receive of the epoch, ask for ack_tick().
  enum Chore : std::uint8_t { kChoreAttention = 1, kChoreFirstRx = 2, kChoreTimer = 4 };
  std::uint8_t chores_ = kChoreAttention | kChoreTimer;
  bool blocked_ = false;  // the log waits for the window
  bool replaying_ = false;
  bool lost_reported_ = false;
  std::atomic<std::uint32_t> events_pending_{0};
  std::atomic<std::uint32_t> epoch_{0};

  // Sending. acked_ <= tx_sent_ <= tx_next_.
  std::uint64_t tx_next_ = 0;  // SENDs accepted
  std::uint64_t tx_sent_ = 0;  // SENDs posted at least once
  std::uint64_t acked_ = 0;    // SENDs the peer has counted, as far as it told me
  std::uint32_t window_;
  std::uint32_t send_depth_;
  std::uint32_t signal_every_;
  std::uint32_t max_inline_;
  std::uint32_t fast_payload_;  // a SEND up to this size goes inline and fits the peer's buffers
  // So many such SENDs may be posted at once without looking at window, queue, log or lane.
  std::uint32_t fast_sends_ = 0;
  std::uint32_t sq_posted_ = 0;      // WRs of this lane
  std::uint32_t sq_retired_ = 0;     // of these, known to have left the SQ
  std::uint32_t signalled_end_ = 0;  // behind the last signalled one
  std::uint32_t probe_end_ = 0;      // behind what was posted before the last probe
  // WRs since the last signalled one, and a share for the memory they hold.
  std::uint32_t unsignalled_ = 0;
  // Posted log entries whose completion must be seen: RDMA, and SENDs read in place.
  std::uint32_t wire_entries_ = 0;
  // Why an acknowledgement is more than moving the done cursor over as many SENDs; 0: it is not.
  static constexpr std::uint32_t kNotSteady = 1;  // not Posting, or replaying
  static constexpr std::uint32_t kOneRdma =
      2;  // for each RDMA entry the done cursor has not passed
  std::uint32_t special_ = kNotSteady;
  std::uint64_t log_wr_base_ = 0;  // make_wr_id(Log, epoch, 0)
  std::uint64_t ack_wr_base_ = 0;
  OpLog log_;
  ibv_send_wr wr_{};  // the one work request, reused
  ibv_sge sge_{};
  ibv_send_wr* bad_wr_ = nullptr;  // the device may write it; it can only be wr_
  std::uint16_t epoch_lo_ = 0;
  Lane lane_;
  int (*post_send_)(ibv_qp*, ibv_send_wr*, ibv_send_wr**) = nullptr;  // of the lane's device

  // Receiving.
  static constexpr std::uint32_t kNoEpoch = 0xffffffffu;
  std::uint32_t rx_epoch_ = kNoEpoch;  // receives of this epoch count; none while none is attached
  std::atomic<std::uint64_t> rx_next_{0};  // SENDs counted
  // An ack is written when rx_next_ gets here: what the peer was last told, and W/4.
  std::atomic<std::uint64_t> ack_due_{0};
  std::uint32_t ack_threshold_;
  std::uint64_t tick_rx_next_ = 0;  // at the last ack_tick()
  std::uint32_t silent_ticks_ = 0;
  std::uint32_t busy_ticks_ = 0;  // ticks in a row that found the lock held; ack_tick()'s own
  AckCell* cell_;

  Poller& home_;
  std::uint64_t send_bytes_ = 0;        // payload of all SENDs accepted
  std::uint64_t control_sends_ = 0;     // of the SENDs accepted, atomics' requests and replies
  std::uint64_t control_receives_ = 0;  // of the SENDs counted, those that were not delivered
  ChannelStats stats_;

  // Rare.
  ChannelConfig config_;
  ChannelEvents events_;
  std::uint64_t replay_end_ = 0;  // log_empty when done reaches it
  bool wanted_raised_ = false;
  bool asleep_ = false;
  bool abandoned_ = false;
  bool unfenced_ = false;  // a device that does not obey may still read and write what was posted
  int lost_status_ = 0;
  std::uint32_t lost_vendor_err_ = 0;
  std::vector<PendingFault> faults_;
  OpFault op_fault_;
  std::vector<RemoteKeys> renewed_;
  AmoTable calls_;
  AmoCall* waiting_calls_ = nullptr;  // no Frag to be had; newest first
  std::vector<Reply> waiting_replies_;
};

}  // namespace mend::ops

#include "ops/channel_inline.h"
