#include "tests/unit/verbs/fake_device.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>

#include "tests/unit/verbs/fake_parts.h"

namespace mend::test {

FakeDevice* current_fake = nullptr;

void set_nonblocking_pipe(int (&fds)[2]) {
  if (pipe2(fds, O_NONBLOCK | O_CLOEXEC) != 0) fds[0] = fds[1] = -1;
}

FakeDevice::FakeDevice() {
  current_fake = this;
  std::strcpy(device_.name, "fake0");
  set_nonblocking_pipe(async_pipe_);
  fcntl(async_pipe_[0], F_SETFL, 0);
  limits.phys_port_cnt = 1;
  limits.max_qp = 64;
  limits.max_qp_wr = 1024;
  limits.max_sge = 4;
  limits.max_cq = 16;
  limits.max_cqe = 65536;
  limits.max_srq = 4;
  limits.max_srq_wr = 4096;
  limits.max_srq_sge = 1;
  limits.max_qp_rd_atom = limits.max_qp_init_rd_atom = 4;
  port.state = IBV_PORT_ACTIVE;
  port.active_mtu = IBV_MTU_4096;
  port.link_layer = IBV_LINK_LAYER_ETHERNET;
  port.active_width = 2;
  port.active_speed = 32;
  port.max_msg_sz = 1u << 30;
  port.gid_tbl_len = 8;
  port.pkey_tbl_len = 1;
  pkeys = {0xffff};
  gids = {{1, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1}, verbs::GidType::RoceV2}};

  fill_fake_table(api);
}

FakeDevice::~FakeDevice() {
  close(async_pipe_[0]);
  close(async_pipe_[1]);
  current_fake = nullptr;
}

void FakeDevice::fail(const std::string& name, int code, int times, int skip) {
  const std::scoped_lock lock(mutex_);
  faults_[name].push_back({code, times, skip});
}

int FakeDevice::calls(const std::string& name) const {
  const std::scoped_lock lock(mutex_);
  const auto found = calls_.find(name);
  return found != calls_.end() ? found->second : 0;
}

int FakeDevice::failure(const char* name) {
  ++calls_[name];
  auto& faults = faults_[name];
  if (faults.empty()) return 0;
  Fault& fault = faults.front();
  if (fault.skip > 0) {
    --fault.skip;
    return 0;
  }
  const int code = fault.code;
  if (--fault.times == 0) faults.pop_front();
  return code;
}

bool FakeDevice::should_fail(const char* name) {
  const int code = failure(name);
  if (code != 0) errno = code;
  return code != 0;
}

FakeDevice::Qp* FakeDevice::find(std::uint32_t qpn) const {
  const auto found = qps_.find(qpn);
  return found != qps_.end() ? found->second : nullptr;
}

void FakeDevice::complete(Cq* cq, const ibv_wc& wc) {
  cq->entries.push_back(wc);
  if (!cq->armed || cq->cq.channel == nullptr) return;
  cq->armed = false;
  auto* channel = reinterpret_cast<Channel*>(cq->cq.channel);
  channel->ready.push_back(&cq->cq);
  poke(channel->write_fd);
}

void FakeDevice::flush(Qp& qp) {
  ibv_wc wc{};
  wc.qp_num = qp.qp.qp_num;
  wc.status = IBV_WC_WR_FLUSH_ERR;
  wc.opcode = IBV_WC_SEND;
  for (const std::uint64_t wr_id : qp.stuck_sends) {
    wc.wr_id = wr_id;
    complete(reinterpret_cast<Cq*>(qp.qp.send_cq), wc);
  }
  qp.stuck_sends.clear();
  wc.opcode = IBV_WC_RECV;
  for (const auto& [wr_id, sge] : qp.posted) {
    wc.wr_id = wr_id;
    complete(reinterpret_cast<Cq*>(qp.qp.recv_cq), wc);
  }
  qp.posted.clear();
  if (qp.qp.srq != nullptr && raises_last_wqe && last_wqe_hook != nullptr) {
    last_wqe_hook(hook_context, qp.qp.qp_num);
  }
}

bool FakeDevice::deliver(Qp& to, const void* data, std::uint32_t bytes, std::uint32_t from,
                         bool grh) {
  auto& receives = to.receives();
  if (receives.empty()) return false;
  const auto [wr_id, sge] = receives.front();
  receives.pop_front();
  auto* at = reinterpret_cast<std::uint8_t*>(sge.addr);
  ibv_wc wc{};
  if (grh) {
    std::memset(at, 0, 40);
    at[0] = 0x60;
    std::memcpy(at + 8, gids.at(0).gid.data(), 16);
    at += 40;
    wc.wc_flags = IBV_WC_GRH;
  }
  if (bytes > 0) std::memcpy(at, data, bytes);
  wc.wr_id = wr_id;
  wc.status = IBV_WC_SUCCESS;
  wc.opcode = IBV_WC_RECV;
  wc.qp_num = to.qp.qp_num;
  wc.src_qp = from;
  wc.byte_len = bytes + (grh ? 40 : 0);
  complete(reinterpret_cast<Cq*>(to.qp.recv_cq), wc);
  return true;
}

void FakeDevice::raise(const ibv_async_event& event) {
  const std::scoped_lock lock(mutex_);
  events_.push_back(event);
  poke(async_pipe_[1]);
}

ibv_qp_state FakeDevice::state(std::uint32_t qpn) const {
  const std::scoped_lock lock(mutex_);
  const Qp* qp = find(qpn);
  return qp != nullptr ? qp->state : IBV_QPS_UNKNOWN;
}

void FakeDevice::break_qp(std::uint32_t qpn) {
  const std::scoped_lock lock(mutex_);
  Qp* qp = find(qpn);
  if (qp == nullptr) return;
  qp->state = IBV_QPS_ERR;
  flush(*qp);
}

bool FakeDevice::push_receive(std::uint32_t qpn, std::span<const std::byte> bytes) {
  const std::scoped_lock lock(mutex_);
  Qp* qp = find(qpn);
  return qp != nullptr &&
         deliver(*qp, bytes.data(), static_cast<std::uint32_t>(bytes.size()), 0, false);
}

std::size_t FakeDevice::posted_receives(const ibv_srq* srq) const {
  const std::scoped_lock lock(mutex_);
  return reinterpret_cast<const Srq*>(srq)->posted.size();
}

}  // namespace mend::test
