// Channel: the one repair that an operation may have whose keys or memory were refused
// (docs/protocol.md 1.6, 1.9). Which fault earns one is the connection layer's decision.
#include <algorithm>
#include <mutex>

#include "ops/channel.h"
#include "ops/wr_id.h"

namespace mend::ops {
namespace {

constexpr std::size_t kMostRenewed = 64;  // regions of a peer whose new keys are remembered

}  // namespace

// The first error names the operation; flushes and what follows do not.
void Channel::note_send_error(const ibv_wc& wc) {
  note_lost(wc.status, wc.vendor_err);
  if (wc.status == IBV_WC_WR_FLUSH_ERR || lost_reported_ || lost_status_ != wc.status) {
    return;
  }
  op_fault_ = OpFault{};
  if (wr_kind(wc.wr_id) != WrKind::Log) {
    return;
  }
  for (std::uint64_t i = log_.retired(); i != log_.posted(); ++i) {
    const LogEntry& entry = log_.at(i);
    if (entry.sq_position == wr_lower(wc.wr_id) && (entry.flags & kLogDone) == 0) {
      describe_fault(i);
      return;
    }
  }
}

void Channel::describe_fault(std::uint64_t position) {
  const LogEntry& entry = log_.at(position);
  OpFault& fault = op_fault_;
  fault.found = true;
  fault.repaired = (entry.flags & kLogRepaired) != 0;
  fault.kind = entry.kind;
  fault.position = position;
  fault.bytes = entry.length;
  if (entry.kind == LogKind::Send) {
    Frag& frag = entry.frag();
    fault.local = reinterpret_cast<std::uint64_t>(&frag.header);
    if ((entry.flags & kLogWire) != 0) {
      fault.lkey = frag.keys->lkey[lane_.local_rail.value];
    }
    return;
  }
  const RdmaOp& op = entry.rdma();
  fault.local = reinterpret_cast<std::uint64_t>(op.local) + entry.offset;
  if (op.local_keys != nullptr) {
    fault.lkey = op.local_keys->lkey[lane_.local_rail.value];
  }
  fault.remote = op.remote + entry.offset;
  fault.rkey = op.remote_keys.rkey[lane_.remote_rail.value];
  fault.reg_id = op.remote_keys.reg_id;
  fault.generation = op.remote_keys.generation;
}

OpFault Channel::op_fault() const {
  const std::lock_guard guard(lock_);
  return op_fault_;
}

void Channel::begin_repair() {
  const std::lock_guard guard(lock_);
  if (op_fault_.found && op_fault_.position >= log_.base() && op_fault_.position < log_.end()) {
    log_.at(op_fault_.position).flags |= kLogRepaired;
  }
}

void Channel::renew_remote_keys(const RemoteKeys& keys) {
  const std::lock_guard guard(lock_);
  for (std::uint64_t i = log_.done(); i != log_.end(); ++i) {
    const LogEntry& entry = log_.at(i);
    if (entry.kind != LogKind::Send && (entry.flags & kLogDone) == 0 &&
        entry.rdma().remote_keys.reg_id == keys.reg_id) {
      entry.rdma().remote_keys = keys;
    }
  }
  std::erase_if(renewed_, [&](const RemoteKeys& old) { return old.reg_id == keys.reg_id; });
  if (renewed_.size() == kMostRenewed) {
    renewed_.erase(renewed_.begin());
  }
  renewed_.push_back(keys);
}

// The layer above still has the handle with the old keys.
void Channel::use_renewed_keys(RdmaOp& op) const {
  for (const RemoteKeys& keys : renewed_) {
    if (keys.reg_id == op.remote_keys.reg_id && keys.generation > op.remote_keys.generation) {
      op.remote_keys = keys;
    }
  }
}

void Channel::renew_local_keys(RailId rail, Lkey old, const LocalKeys& keys) {
  const std::lock_guard guard(lock_);
  const auto is_old = [&](const LocalKeys* of) {
    return of != nullptr && of->lkey[rail.value] == old;
  };
  for (std::uint64_t i = log_.done(); i != log_.end(); ++i) {
    const LogEntry& entry = log_.at(i);
    if (entry.kind == LogKind::Send) {
      if (is_old(entry.frag().keys)) {
        entry.frag().keys = &keys;
      }
    } else if ((entry.flags & kLogDone) == 0 && is_old(entry.rdma().local_keys)) {
      entry.rdma().local_keys = &keys;
    }
  }
}

}  // namespace mend::ops
