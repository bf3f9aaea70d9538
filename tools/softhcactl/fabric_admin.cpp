#include "tools/softhcactl/fabric_admin.h"

#include <fmt/core.h>

#include <cerrno>
#include <cstring>
#include <map>

#include "softhca/engine/gid_table.h"
#include "softhca/engine/injector.h"
#include "softhca/engine/ports.h"
#include "softhca/engine/shared_conf.h"

namespace softhcactl {

using softhca::DirEntry;
using softhca::Peer;
using softhca::QpShared;
using softhca::SlotState;

tl::expected<std::unique_ptr<FabricAdmin>, std::string> FabricAdmin::attach(
    const std::string& fabric) {
  std::unique_ptr<FabricAdmin> admin(new FabricAdmin(fabric));
  softhca::Fabric& f = admin->fabric_;
  f.clock = &admin->clock_;
  std::string why;
  int rc = f.global.open_locked(fabric, &why);
  if (rc == 0) {
    admin->process_ = std::make_unique<softhca::Process>(f);
    rc = softhca::read_shared_conf(*f.global.shared(), &f.conf, &why);
    if (rc == 0) rc = admin->process_->attach(&why);
    // Everybody has left since we looked: what we opened is a fabric that we just made.
    if (rc == ENOENT && !f.global.anyone_else_attached(softhca::kMaxSlots)) f.global.unlink_file();
    f.global.unlock_attach();
  }
  if (rc != 0) return tl::make_unexpected(fmt::format("{}: {}", why, std::strerror(rc)));
  return admin;
}

FabricAdmin::~FabricAdmin() = default;

std::vector<PortView> FabricAdmin::ports() const {
  std::vector<PortView> all;
  for (unsigned d = 0; d < fabric_.conf.devices.size(); ++d) {
    const softhca::DeviceConf& device = fabric_.conf.devices[d];
    for (unsigned p = 0; p < device.ports.size(); ++p) {
      const bool down = fabric_.global.shared()->ports[d][p].down.load() != 0;
      all.push_back({device.name, p + 1, !down, &device.ports[p], {}});
      const softhca::GidTable table(*process_, d, p + 1);
      for (unsigned place = 0; place < table.size(); ++place) {
        const softhca::GidConf* gid = table.at(place);
        all.back().gids.push_back(gid != nullptr ? std::optional(*gid) : std::nullopt);
      }
    }
  }
  return all;
}

template <typename Visit>
void FabricAdmin::for_each_qp(Visit visit) {
  for (const DirEntry& entry : process_->global()->dir) {
    const uint32_t qpn = entry.qpn.load(std::memory_order_acquire);
    if (qpn == 0) continue;
    Peer* peer = process_->peer(entry.slot.load(), entry.gen.load());
    if (peer == nullptr) continue;
    QpShared* qp = peer->at<QpShared>(entry.qp.load());
    if (qp->qpn.load() == qpn) visit(*peer, qpn, *qp);
  }
}

std::vector<ProcessView> FabricAdmin::processes() {
  std::map<uint32_t, unsigned> qps_of_slot;
  for_each_qp([&](const Peer& peer, uint32_t, const QpShared&) { ++qps_of_slot[peer.slot]; });
  std::vector<ProcessView> all;
  for (uint32_t slot = 0; slot < softhca::kMaxSlots; ++slot) {
    const softhca::SlotShared& entry = process_->global()->slots[slot];
    if (slot == process_->self().slot || entry.state.load() != SlotState::Live) continue;
    if (!fabric_.global.alive(slot, entry.gen)) continue;
    all.push_back({slot, entry.pid, qps_of_slot[slot]});
  }
  return all;
}

std::vector<QpView> FabricAdmin::qps() {
  std::vector<QpView> all;
  for_each_qp([&](const Peer& peer, uint32_t qpn, const QpShared& qp) {
    QpView view;
    view.qpn = qpn;
    view.pid = peer.pid;
    view.type = qp.type;
    view.state = qp.state.load();
    view.dest_qpn = qp.dest_qpn.load();
    if (qp.device < fabric_.conf.devices.size()) view.device = fabric_.conf.devices[qp.device].name;
    view.port = qp.port;
    view.tx_messages = qp.tx_messages.load();
    view.tx_bytes = qp.tx_bytes.load();
    view.rnr_naks = qp.rnr_naks.load();
    view.retries = qp.retries.load();
    all.push_back(std::move(view));
  });
  return all;
}

// The number of the device.
tl::expected<unsigned, std::string> FabricAdmin::find_port(const std::string& device,
                                                           unsigned port) const {
  const auto& devices = fabric_.conf.devices;
  std::string names;
  for (unsigned d = 0; d < devices.size(); ++d) {
    names += (d == 0 ? "" : ", ") + devices[d].name;
    if (devices[d].name != device) continue;
    if (port == 0 || port > devices[d].ports.size())
      return tl::make_unexpected(
          fmt::format("{} has ports 1 to {}", device, devices[d].ports.size()));
    return d;
  }
  return tl::make_unexpected(fmt::format("no device '{}'; there is: {}", device, names));
}

tl::expected<bool, std::string> FabricAdmin::set_port(const std::string& device, unsigned port,
                                                      bool up) {
  return find_port(device, port).map([&](unsigned number) {
    return softhca::set_port_down(*process_, number, port, !up);
  });
}

tl::expected<bool, std::string> FabricAdmin::swap_gids(const std::string& device, unsigned port,
                                                       unsigned a, unsigned b) {
  return find_port(device, port).map([&](unsigned number) {
    return softhca::swap_gids(*process_, number, port, a, b);
  });
}

std::vector<FabricAdmin::FaultView> FabricAdmin::faults() const {
  std::vector<FaultView> all;
  const softhca::FaultBoard& board = fabric_.global.shared()->faults;
  for (const softhca::FaultCopy& copy : softhca::board_rules(board)) {
    all.push_back({copy.slot, std::string(copy.rule.written()), copy.rule.seed,
                   board.slots[copy.slot].hits.load(), copy.origin == 0});
  }
  return all;
}

tl::expected<std::size_t, std::string> FabricAdmin::add_faults(const std::string& text) {
  const auto list = softhca::parse_faults(text);
  if (!list)
    return tl::make_unexpected(fmt::format("'{}': {}", list.error().item, list.error().msg));
  fabric_.global.lock_attach();
  const bool added = softhca::board_add(fabric_.global.shared()->faults, *list, 0, process_->now());
  fabric_.global.unlock_attach();
  if (!added) {
    return tl::make_unexpected(
        fmt::format("a fabric has room for {} rules", softhca::kMaxFaultRules));
  }
  process_->poke_everybody();
  return list->size();
}

void FabricAdmin::clear_faults() {
  softhca::FaultBoard& board = fabric_.global.shared()->faults;
  fabric_.global.lock_attach();
  std::vector<softhca::FaultRule> undone;
  for (const softhca::FaultCopy& copy : softhca::board_rules(board)) {
    const bool took_down =
        copy.rule.kind == softhca::FaultKind::PortDown && board.slots[copy.slot].hits.load() != 0;
    if (took_down) undone.push_back(copy.rule);
  }
  softhca::board_clear(board);
  fabric_.global.unlock_attach();
  process_->poke_everybody();
  for (const softhca::FaultRule& rule : undone) softhca::restore_ports(*process_, rule);
}

void FabricAdmin::reset() {
  for_each_qp([](const Peer&, uint32_t, QpShared& qp) {
    qp.tx_messages = 0;
    qp.tx_bytes = 0;
    qp.rnr_naks = 0;
    qp.retries = 0;
  });
  for (const PortView& p : ports()) {
    (void)set_port(p.device, p.port, p.conf->state == IBV_PORT_ACTIVE);
    if (const auto number = find_port(p.device, p.port))
      softhca::reset_gids(*process_, *number, p.port);
  }
}

}  // namespace softhcactl
