// What comes in and goes out on the service thread: control datagrams.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "plugin/conn/control_plane.h"
#include "plugin/verbs/log.h"

namespace mend::conn {
namespace {

// To its sender, in the name of whom it was meant for; from no connection that it could know.
CtlMessage reply_to(const CtlMessage& m, MsgType type) {
  CtlMessage answer;
  answer.type = type;
  answer.job_key = m.job_key;
  answer.src_boot = m.dst_boot;
  answer.dst_boot = m.src_boot;
  answer.src_rank = m.dst_rank;
  answer.dst_rank = m.src_rank;
  answer.dst_conn = m.src_conn;
  answer.epoch = m.epoch;
  answer.k = m.k;
  return answer;
}

}  // namespace

void ControlPlane::drop(DropReason reason) {
  drops_[static_cast<std::size_t>(reason)].fetch_add(1, std::memory_order_relaxed);
}

void ControlPlane::on_control_readable(std::size_t rail) {
  struct Arrival {
    ControlPlane* plane;
    std::size_t rail;
  } arrival{this, rail};
  UdChannel& channel = *rails_[rail].control;
  channel.receive(
      [](void* context, std::span<const std::byte> bytes, const UdSource& source) {
        const auto* a = static_cast<Arrival*>(context);
        a->plane->on_datagram(a->rail, bytes, source);
      },
      &arrival);
  if (channel.broken()) mend_control(rails_[rail]);
}

void ControlPlane::on_datagram(std::size_t rail, std::span<const std::byte> bytes,
                               const UdSource& source) {
  const auto message = parse(bytes);
  if (!message) return drop(message.error());
  if (const auto refused = addressed_to_me(*message, self_)) {
    if (*refused == DropReason::Boot) reject_stale(*message);
    return drop(*refused);
  }
  accept(rail, *message, source);
}

void ControlPlane::accept(std::size_t rail, const CtlMessage& message, const UdSource& source) {
  Connection* connection = nullptr;
  PeerName name;
  {
    const std::lock_guard guard(mutex_);
    const auto it = by_boot_.find(message.src_boot);
    if (it == by_boot_.end()) {
      drop(DropReason::Boot);
      if (message.type != MsgType::Req && message.type != MsgType::Nudge) return;
      say_busy(rails_[rail], message, source);
      // Somebody of this job who has not been added here yet: the next progress call looks it up.
      // The sender repeats itself, and each time it is looked up anew: that may have failed.
      unknown_.insert_or_assign(message.src_rank, Unknown{rail, message, source});
      if (std::find(unknown_new_.begin(), unknown_new_.end(), message.src_rank) ==
          unknown_new_.end())
        unknown_new_.push_back(message.src_rank);
      ask_attention();
      return;
    }
    const Peer& peer = *it->second;
    if (message.k >= peer.connections.size()) return drop(DropReason::Connection);
    connection = peer.connections[message.k];
    name = PeerName{peer.modex.boot, peer.rank, message.k};
  }
  if (const auto refused = from_peer(message, name, connection->id())) return drop(*refused);
  connection->on_message(message, source);
}

// Meant for the process that had our place before: whoever still talks to it fails at once. Only a
// peer that we know ourselves can be told.
void ControlPlane::reject_stale(const CtlMessage& m) {
  if (m.type == MsgType::Rej || m.type == MsgType::Bye || m.type == MsgType::ByeAck) return;
  Connection* connection = nullptr;
  {
    const std::lock_guard guard(mutex_);
    const auto it = by_boot_.find(m.src_boot);
    if (it == by_boot_.end() || m.k >= it->second->connections.size()) return;
    connection = it->second->connections[m.k];
  }
  CtlMessage answer = reply_to(m, MsgType::Rej);
  answer.reason = RejReason::StaleBoot;
  answer.src_conn = m.dst_conn;
  answer.data_epoch = m.data_epoch;
  connection->answer(answer);
}

// Alive, but the application has to call MPI before the sender can be looked up. Processes of one
// job have the same queue key, and the rest of the address came with the datagram.
void ControlPlane::say_busy(RailUnit& via, const CtlMessage& m, const UdSource& source) {
  UdAddress to;
  if (source.has_gid) to.gid = source.gid;
  to.lid = source.lid;
  to.qpn = source.qpn;
  to.qkey = via.control->address().qkey;
  send(via, to, reply_to(m, MsgType::Busy), nullptr);
}

void ControlPlane::send(RailUnit& via, const UdAddress& to, const CtlMessage& message,
                        Connection* sender) {
  std::array<std::byte, kCtlMaxBytes> bytes;
  const std::size_t size = encode(message, bytes);
  switch (via.control->send(to, std::span(bytes).first(size))) {
    case UdSend::Sent:
    case UdSend::TooLong:
    case UdSend::Busy:  // the sender's state machine repeats itself
      return;
    case UdSend::NoPath:
      return resolve_then_send(
          via, to, std::vector(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)),
          sender);
    case UdSend::Broken:
      return mend_control(via);
  }
}

void ControlPlane::resolve_then_send(RailUnit& via, const UdAddress& to,
                                     std::vector<std::byte> bytes, Connection* sender) {
  worker_->submit([this, &via, to, bytes = std::move(bytes), sender] {
    if (auto resolved = via.control->resolve(to); !resolved) {
      log(LogLevel::Info, "no path for a control message: " + resolved.error().message);
      if (sender != nullptr) sender->note_trouble(resolved.error().message);
      return;
    }
    service_->post([&via, to, bytes] { (void)via.control->send(to, bytes); });
  });
}

// The control QP is reset in place and keeps its number: it has no connection into which late
// packets could get.
void ControlPlane::mend_control(RailUnit& via) {
  UdChannel* channel = via.control.get();
  if (!mending_.insert(channel).second) return;
  worker_->submit([this, channel] {
    if (auto reset = channel->reset_in_place(); !reset)
      log(LogLevel::Error, "the control queue pair cannot be reset: " + reset.error().message);
    service_->post([this, channel] { mending_.erase(channel); });
  });
}

}  // namespace mend::conn
