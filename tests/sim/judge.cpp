#include "tests/sim/judge.h"

#include <fmt/format.h>

#include <cstring>

#include "softhca/engine/qp.h"

namespace mend::sim {

Judge::Judge(softhca::sim::Fabric& fabric, Tap& tap, Traffic& traffic)
    : fabric_(fabric), tap_(tap), traffic_(traffic) {
  tap_.saw_message = [this](std::size_t node, const conn::CtlMessage& message) {
    judge_message(node, message);
  };
  tap_.saw_early = [this](const Request& request) {
    traffic_.complain(
        fmt::format("{} sent to {} before that was connected (F5)", request.node, request.peer));
  };
}

void Judge::judge_message(std::size_t node, const conn::CtlMessage& message) {
  using conn::MsgType;
  if (message.type != MsgType::Req && message.type != MsgType::Rep) return;
  Offered& last = offered_[{node, message.dst_rank}];
  const Offered now{message.epoch.value, message.endpoint.qpn.value, message.endpoint.psn.value};
  if (now.epoch < last.epoch)
    traffic_.complain(
        fmt::format("{} went back from epoch {} to {} (F2)", node, last.epoch, now.epoch));
  else if (now.epoch == last.epoch && (now.qpn != last.qpn || now.psn != last.psn))
    traffic_.complain(fmt::format("{} offered two queue pairs for epoch {} (F6)", node, now.epoch));
  last = now;
}

void Judge::look() {
  for (const softhca::WrLogEntry& entry : fabric_.log()) {
    if (entry.outcome == static_cast<std::uint8_t>(softhca::Outcome::NotReady)) ++not_ready_;
    if (entry.qp_type != IBV_QPT_RC || !entry.executed || entry.dest_node < 0) continue;
    ++executed_;
    const auto from = static_cast<std::size_t>(entry.src_node);
    const auto to = static_cast<std::size_t>(entry.dest_node);
    if (entry.opcode == IBV_WR_SEND && entry.head_length >= sizeof(ops::DataHeader)) {
      ops::DataHeader header;
      std::memcpy(&header, entry.head.data(), sizeof header);
      judge_send(from, to, header);
    } else if (entry.opcode == IBV_WR_RDMA_WRITE) {
      judge_write(to, entry.remote_addr);
    }
  }
  fabric_.log().clear();
}

void Judge::next_sequence(std::uint32_t seq) {
  for (auto& [pair, flow] : flows_) flow.first = seq - static_cast<std::uint32_t>(flow.executed);
}

void Judge::judge_send(std::size_t from, std::size_t to, const ops::DataHeader& header) {
  Flow& flow = flows_[{from, to}];
  const std::uint32_t wanted = flow.first + static_cast<std::uint32_t>(flow.executed);
  if (header.seq != wanted)
    traffic_.complain(fmt::format(
        "the device executed SEND {} of {} -> {} {} {}", header.seq, from, to,
        header.seq - wanted > 0x80000000u ? "again, before" : "out of order, for", wanted));
  else
    ++flow.executed;
  if (header.kind == static_cast<std::uint8_t>(ops::Kind::Data)) ++flow.data;
}

void Judge::judge_write(std::size_t to, std::uint64_t address) {
  const Traffic::PutName* put = traffic_.put_at(to, address);
  if (put == nullptr) return;  // an acknowledgement
  if (++writes_[{to, address}] > 1) ++put_repeats_;
  if (flows_[{put->from, put->to}].data > put->notice)
    traffic_.complain(
        fmt::format("the device executed a put {} -> {} behind message {} that told of it",
                    put->from, put->to, put->notice));
}

void Judge::at_the_end() {
  look();
  for (const auto& [pair, flow] : flows_)
    if (flow.data < traffic_.sent(pair.first, pair.second))
      traffic_.complain(fmt::format("{} -> {}: {} messages were sent, the device executed {}",
                                    pair.first, pair.second, traffic_.sent(pair.first, pair.second),
                                    flow.data));
}

}  // namespace mend::sim
