// Names for logs and tests.
#include "plugin/conn/fsm.h"

namespace mend::conn {

const char* to_string(Role role) { return role == Role::Leader ? "leader" : "follower"; }

const char* to_string(EventKind kind) {
  switch (kind) {
    case EventKind::Submit:
      return "Submit";
    case EventKind::Req:
      return "Req";
    case EventKind::Rep:
      return "Rep";
    case EventKind::Commit:
      return "Commit";
    case EventKind::Nudge:
      return "Nudge";
    case EventKind::Hb:
      return "Hb";
    case EventKind::HbAck:
      return "HbAck";
    case EventKind::Busy:
      return "Busy";
    case EventKind::Bye:
      return "Bye";
    case EventKind::ByeAck:
      return "ByeAck";
    case EventKind::Rej:
      return "Rej";
    case EventKind::Key:
      return "Key";
    case EventKind::FenceDone:
      return "FenceDone";
    case EventKind::FenceFailed:
      return "FenceFailed";
    case EventKind::QpReady:
      return "QpReady";
    case EventKind::QpFailed:
      return "QpFailed";
    case EventKind::LinkLost:
      return "LinkLost";
    case EventKind::RcReceive:
      return "RcReceive";
    case EventKind::LogEmpty:
      return "LogEmpty";
    case EventKind::ProbeOk:
      return "ProbeOk";
    case EventKind::ProbeFailed:
      return "ProbeFailed";
    case EventKind::Timer:
      return "Timer";
    case EventKind::PortDown:
      return "PortDown";
    case EventKind::PortUp:
      return "PortUp";
    case EventKind::Close:
      return "Close";
    case EventKind::Flushed:
      return "Flushed";
    case EventKind::NotRepairable:
      return "NotRepairable";
  }
  return "?";
}

const char* to_string(ActionType type) {
  switch (type) {
    case ActionType::Fence:
      return "Fence";
    case ActionType::PrepareQp:
      return "PrepareQp";
    case ActionType::ConnectQp:
      return "ConnectQp";
    case ActionType::StartReplay:
      return "StartReplay";
    case ActionType::PeerAck:
      return "PeerAck";
    case ActionType::SendReq:
      return "SendReq";
    case ActionType::SendRep:
      return "SendRep";
    case ActionType::SendCommit:
      return "SendCommit";
    case ActionType::SendNudge:
      return "SendNudge";
    case ActionType::SendHb:
      return "SendHb";
    case ActionType::SendHbAck:
      return "SendHbAck";
    case ActionType::SendBusy:
      return "SendBusy";
    case ActionType::SendBye:
      return "SendBye";
    case ActionType::SendByeAck:
      return "SendByeAck";
    case ActionType::SendRej:
      return "SendRej";
    case ActionType::Probe:
      return "Probe";
    case ActionType::ArmTimer:
      return "ArmTimer";
    case ActionType::Up:
      return "Up";
    case ActionType::GiveUp:
      return "GiveUp";
    case ActionType::Closed:
      return "Closed";
  }
  return "?";
}

const char* to_string(Outcome outcome) {
  switch (outcome) {
    case Outcome::Acted:
      return "acted";
    case Outcome::Heard:
      return "heard";
    case Outcome::Stale:
      return "stale";
    case Outcome::Ignored:
      return "ignored";
    case Outcome::WrongRole:
      return "wrong role";
    case Outcome::Impossible:
      return "impossible";
  }
  return "?";
}

const char* to_string(GiveUpReason reason) {
  switch (reason) {
    case GiveUpReason::None:
      return "none";
    case GiveUpReason::Deadline:
      return "no connection within max_outage_s";
    case GiveUpReason::PeerRejected:
      return "the peer refused to go on";
    case GiveUpReason::DataLoss:
      return "the peer has received less than it had acknowledged";
    case GiveUpReason::Corrupt:
      return "the peer claims to have received more than was sent";
    case GiveUpReason::FenceFailed:
      return "a queue pair could not be brought to RESET";
    case GiveUpReason::LocalError:
      return "a local error that no retry can cure";
    case GiveUpReason::PeerLost:
      return "the job goes on without the peer";
    case GiveUpReason::FlushExpired:
      return "not everything was flushed within max_outage_s";
  }
  return "?";
}

const char* to_string(Command command) {
  switch (command) {
    case Command::None:
      return "none";
    case Command::Fence:
      return "fence";
    case Command::Prepare:
      return "prepare";
    case Command::Connect:
      return "connect";
  }
  return "?";
}

}  // namespace mend::conn
