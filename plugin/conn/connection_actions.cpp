// The actions of a connection's state machine, on the service thread.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ops/poller.h"
#include "ops/recv_pool.h"
#include "plugin/conn/connection.h"
#include "plugin/conn/control_plane.h"
#include "plugin/conn/error_policy.h"
#include "plugin/conn/raise_max.h"
#include "plugin/verbs/bare.h"
#include "plugin/verbs/gid.h"
#include "plugin/verbs/log.h"
#include "plugin/verbs/wc_status.h"

namespace mend::conn {
namespace {

constexpr TimeNs kFlushCheck = 10 * kMillisecond;
constexpr TimeNs kProbeCheck = 1 * kMillisecond;

std::string status_text(int status) {
  if (status == ops::kStatusGap) return "a receive out of order";
  if (status == ops::kStatusPostFailed) return "ibv_post_send refused";
  return verbs::wc_status_name(static_cast<ibv_wc_status>(status));
}

constexpr TimeNs kReportMargin = kSecond;

const char* advice(GiveUpReason reason) {
  switch (reason) {
    case GiveUpReason::Deadline:
      return "Check the link of this port at both ends and the switch between them; "
             "btl_mend_max_outage_s sets how long mend waits (0: for ever)";
    case GiveUpReason::PeerRejected:
      return "The other process says why in its own message";
    case GiveUpReason::DataLoss:
    case GiveUpReason::Corrupt:
      return "This should never happen: please report it with the logs of both processes "
             "(btl_base_verbose 50)";
    case GiveUpReason::FenceFailed:
      return "The device does not obey any more: look for its driver in the kernel's log, reset it";
    case GiveUpReason::LocalError:
      return "A new queue pair would meet the same fault; if a device is named, look for its "
             "driver "
             "in the kernel's log, else run the job with btl_base_verbose 50 and report it";
    case GiveUpReason::FlushExpired:
      return "What was not acknowledged by now may be lost";
    case GiveUpReason::PeerLost:
    case GiveUpReason::None:
      break;
  }
  return "";
}

}  // namespace

void Connection::run(const Action& action) {
  switch (action.type) {
    case ActionType::Fence:
      if (lost_at_ == kNever && may_post_before_loss_)
        lost_at_ = std::min(trouble_since_, monotonic_now());
      may_post_before_loss_ = false;
      trouble_since_ = kNever;
      repair_.held_start.reset();
      channel_.stop_posting();
      plane_.worker().submit([this, work = action.work] { work_fence(work); });
      return;
    case ActionType::PrepareQp:
      return prepare(action);
    case ActionType::ConnectQp:
      plane_.worker().submit(
          [this, work = action.work, remote = fsm_.peer.endpoint] { work_connect(work, remote); });
      return;
    case ActionType::StartReplay:
      return start_replay(action);
    case ActionType::PeerAck:
      return channel_.on_peer_ack(action.seq);
    case ActionType::SendReq:
    case ActionType::SendRep:
    case ActionType::SendCommit:
    case ActionType::SendNudge:
    case ActionType::SendHb:
    case ActionType::SendHbAck:
    case ActionType::SendBusy:
    case ActionType::SendBye:
    case ActionType::SendByeAck:
    case ActionType::SendRej:
      return send(action);
    case ActionType::Probe:
      return probe(action);
    case ActionType::ArmTimer:
      return arm(action.at);
    case ActionType::Up:
      return came_up(action);
    case ActionType::GiveUp:
      return give_up(action);
    case ActionType::Closed:
      closed_.store(true, std::memory_order_release);
      return;
  }
}

// Only a leader waits for its turn: a follower that did could have leaders elsewhere wait for it.
void Connection::prepare(const Action& action) {
  if (home_.rail->lost())
    return plane_.service().post(
        [this] { refuse("device " + home_.rail->info().name + " is dead"); });
  const auto start = [this, action] {
    plane_.worker().submit(
        [this, work = action.work, epoch = action.epoch, role = fsm_.role,
         remote = fsm_.peer.endpoint] { work_prepare(work, role, epoch, remote); });
  };
  if (fsm_.role == Role::Follower) return start();
  plane_.enter_handshake(*this, [this, action, start] {
    in_turn_ = true;
    if (fsm_.awaited == Command::Prepare && fsm_.work == action.work)
      start();
    else
      plane_.service().post([this] { end_turn(); });  // it is not wanted any more
  });
}

// A handshake is under way from the preparation of a queue pair until it may post.
void Connection::end_turn() {
  const bool preparing = fsm_.state == State::Fencing && fsm_.awaited == Command::Prepare;
  if (!in_turn_ || preparing || fsm_.state == State::Requesting) return;
  in_turn_ = false;
  plane_.leave_handshake(*this);
}

void Connection::answer(const CtlMessage& message) { plane_.send(home_, address_, message, this); }

void Connection::send(const Action& action) {
  const std::uint32_t srq_free =
      std::min(home_.rail->recv_pool().ledger().posted, home_.free_share);
  CtlMessage message = compose(fsm_, action, channel_.progress_now().rx_next, srq_free);
  stamp(message);
  plane_.send(home_, address_, message, this);
}

void Connection::stamp(CtlMessage& message) const {
  message.job_key = peer_.modex.job_key;
  message.src_boot = plane_.self().boot;
  message.dst_boot = peer_.modex.boot;
  message.src_rank = plane_.self().rank;
  message.dst_rank = peer_.rank;
  message.src_conn = id_;
  message.dst_conn = remote_conn_;
  message.k = k_;
}

void Connection::start_replay(const Action& action) {
  if (repair_.pending) {  // with the old keys it would fail again
    repair_.held_start = action;
    return;
  }
  ever_used_.store(true, std::memory_order_relaxed);
  last_fault_.clear();
  const ops::ReplayVerdict verdict = channel_.start(action.seq);
  if (verdict == ops::ReplayVerdict::Ok) return;
  Event event = simple_event(EventKind::NotRepairable);
  event.reason =
      verdict == ops::ReplayVerdict::DataLoss ? GiveUpReason::DataLoss : GiveUpReason::Corrupt;
  post(event);
}

void Connection::arm(TimeNs at) {
  if constexpr (!kWatches)
    if (may_post(fsm_.state)) return;
  if (timer_.move(at)) plane_.service().arm(at, [this, at] { on_timer(at); });
}

void Connection::on_timer(TimeNs at) {
  if (!timer_.fired(at, monotonic_now())) return arm(timer_.wanted());
  Traffic traffic;
  const std::uint64_t recvs = channel_.stats().recvs;
  traffic.received = recvs != recvs_seen_;
  traffic.outstanding = !channel_.quiet();
  traffic.stale_wr = stale_request();
  recvs_seen_ = recvs;
  handle(timer_event(traffic));
  if (idle()) channel_.fall_asleep();
}

// Looked at with every timer: what waits is stale if nothing has left the send queue, and the peer
// has counted nothing, for longer than the device tries (docs/protocol.md 1.9). The peer may just
// not look, which a probe tells from a send queue that has stopped.
bool Connection::stale_request() {
  const ops::Channel::Waiting waiting = channel_.waiting();
  const TimeNs now = monotonic_now();
  const bool waits = waiting.for_device || waiting.for_peer;
  const bool moved = !waits || waiting.epoch != waiting_seen_.epoch ||
                     waiting.retired != waiting_seen_.retired ||
                     waiting.acked != waiting_seen_.acked;
  waiting_seen_ = waiting;
  if (moved || stuck_since_ == kNever) stuck_since_ = now;
  return !moved && now - stuck_since_ > plane_.probe_limit();
}

bool Connection::idle() const {
  const FsmConfig& config = plane_.fsm_config();
  return may_post(fsm_.state) && config.heartbeat != 0 &&
         fsm_.heartbeat_at > monotonic_now() + config.heartbeat;
}

// A zero-byte write on the queue pair itself: the peer's device answers it, whatever its processes
// do.
void Connection::probe(const Action& action) {
  ops::Poller& poller = home_.rail->poller();
  if (probe_wr_ != 0) poller.cancel_beacon(probe_wr_);
  probe_status_.store(0, std::memory_order_relaxed);
  probe_wr_ = poller.make_beacon_wr_id(&probe_status_);
  probe_epoch_ = action.epoch;
  if (!channel_.post_probe(probe_wr_)) {
    post(simple_event(EventKind::ProbeFailed, action.epoch));
    return;
  }
  watch_probe(monotonic_now() + plane_.probe_limit());
}

// The completion may come while the application is not in MPI: the worker polls for it, again and
// again. It is missing only if a look that began after the deadline did not find it: on a busy
// machine neither the application nor the worker may have had a processor until then.
void Connection::watch_probe(TimeNs deadline) {
  plane_.service().arm(monotonic_now() + kProbeCheck, [this, deadline, wr = probe_wr_] {
    if (wr != probe_wr_) return;
    if (probe_status_.load(std::memory_order_acquire) != 0) return end_probe();
    plane_.worker().submit([this, deadline, wr] {
      const bool last = monotonic_now() >= deadline;
      home_.rail->poller().drain_for_fence();
      plane_.service().post([this, deadline, wr, last] {
        if (wr != probe_wr_) return;
        if (last || probe_status_.load(std::memory_order_acquire) != 0) return end_probe();
        watch_probe(deadline);
      });
    });
  });
}

void Connection::end_probe() {
  home_.rail->poller().cancel_beacon(std::exchange(probe_wr_, 0));
  const bool ok = probe_status_.load(std::memory_order_acquire) == IBV_WC_SUCCESS + 1;
  if (ok) {
    channel_.probe_succeeded(probe_epoch_);
    stuck_since_ = kNever;  // it answers: not asked again at once
  }
  handle(simple_event(ok ? EventKind::ProbeOk : EventKind::ProbeFailed, probe_epoch_));
}

void Connection::came_up(const Action& action) {
  stats_.ups.fetch_add(1, std::memory_order_relaxed);
  may_post_before_loss_ = true;
  if (home_.free_share != kPlenty) tell_free_buffers();  // it may not have heard yet
  if (lost_at_ != kNever) {
    const TimeNs outage = monotonic_now() - lost_at_;
    raise_max(stats_.max_outage_us, outage / 1000);
    lost_at_ = kNever;
    if (log_wanted())
      log(LogLevel::Info,
          fmt::format("{}: active again on epoch {} after {} us, path MTU {}", describe(),
                      action.epoch.value, outage / 1000, stats_.path_mtu.load()));
  } else if (log_wanted()) {
    log(LogLevel::Info, fmt::format("{}: active on epoch {}, path MTU {}", describe(),
                                    action.epoch.value, stats_.path_mtu.load()));
  }
}

// Closing waits for the log; nobody tells when it is empty unless replaying, so look.
void Connection::watch_flush() {
  if (watching_flush_) return;
  watching_flush_ = true;
  plane_.service().arm(monotonic_now() + kFlushCheck, [this] {
    watching_flush_ = false;
    if (closed() || fsm_.state == State::Failed) return;
    if (channel_.quiet())
      handle(simple_event(EventKind::Flushed));
    else
      watch_flush();
  });
}

// Everything a person needs: who, where, what was seen last, for how long, and what to do about it.
void Connection::give_up(const Action& action) {
  std::string text = fmt::format("{}: {}", describe(), to_string(action.reason));
  if (fsm_.outage_since != kNever) {
    const TimeNs tenths = (monotonic_now() - fsm_.outage_since) / (kSecond / 10);
    text += fmt::format(", {}.{} s after the trouble began", tenths / 10, tenths % 10);
  }
  const int status = last_status_.load(std::memory_order_relaxed);
  if (status != 0) text += "; last completion: " + status_text(status);
  if (!last_fault_.empty()) text += "; " + last_fault_;
  text += fmt::format(". {}", advice(action.reason));
  if (action.reason == GiveUpReason::FlushExpired) {
    log(LogLevel::Warn, text);
    return;
  }
  pronounce(action.reason, std::move(text));
}

// Where a job survives losses, who is reported first is taken for dead by everybody and ended, so
// the processes that a faulty port cuts off must not be the first to report. One that hears nobody
// else may be cut off itself, one that was refused is given up by the other. Connections without
// traffic are asked: their silence means nothing. Of the two ends of a path the follower always
// waits for longer: if only that path is gone, the end of one process will do.
void Connection::pronounce(GiveUpReason reason, std::string text) {
  if (!plane_.params().survives_losses) return plane_.report_give_up(peer_, std::move(text));
  if (own_fault(reason)) {
    beyond_help_.store(true, std::memory_order_release);
    return plane_.report_own_end(std::move(text));
  }
  const auto innocent = [this, reason] {
    return reason != GiveUpReason::PeerRejected && hears_somebody();
  };
  const TimeNs turn = fsm_.role == Role::Leader ? 0 : kReportMargin;
  const auto report_after = [this, text = std::move(text)](TimeNs pause) {
    plane_.service().arm(monotonic_now() + pause,
                         [this, text] { plane_.report_give_up(peer_, text); });
  };
  if (innocent()) return report_after(turn);
  plane_.each_connection([](Connection& other) {
    if (other.in_use()) other.post(simple_event(EventKind::Submit));
  });
  // By then the answers are there, and others have noticed the trouble too, from heartbeats. Of two
  // that hear nobody else, one stays.
  const FsmConfig& config = *fsm_.config;
  const TimeNs noticed = config.heartbeat * (config.heartbeat_misses + 1);
  plane_.service().arm(monotonic_now() + noticed, [innocent, report_after, turn] {
    report_after(innocent() ? turn : 2 * kReportMargin + turn);
  });
}

// What this process' own device or memory refuses is no fault of the peer's.
bool Connection::own_fault(GiveUpReason reason) const {
  if (home_.rail->lost() || reason == GiveUpReason::FenceFailed) return true;
  const int status = last_status_.load(std::memory_order_relaxed);
  if (reason != GiveUpReason::LocalError || status <= 0) return false;
  const FaultClass fault = policy_of(static_cast<ibv_wc_status>(status));
  return fault == FaultClass::LocalFault || fault == FaultClass::NotRepairable;
}

bool Connection::hears_somebody() const {
  bool hears_one = false;
  plane_.each_connection([&](const Connection& other) { hears_one = hears_one || other.hears(); });
  return hears_one;
}

// A connection whose peer gave a sign of life since the last heartbeats: every other one is spared
// after an answer. One that is idle asks nothing for long, and its silence says nothing.
bool Connection::hears() const {
  const TimeNs lately = 3 * fsm_.config->heartbeat;
  return fsm_.state == State::Active && fsm_.misses == 0 && monotonic_now() - heard_at_ <= lately;
}

std::string Connection::describe() const {
  const PortView port = home_.rail->port();
  return fmt::format("connection {} -> {} on {} ({}), rail {}, GID {} (index {}), QP {}",
                     plane_.self().rank, peer_.rank, peer_.host, k_, home_.rail->info().name,
                     verbs::format_gid(port.gid.gid), port.gid.index, fsm_.mine.endpoint.qpn.value);
}

}  // namespace mend::conn
