// A running fabric as its administrator sees it. Attaches as one more process of the fabric, so it
// takes a slot while it lives. Not thread safe. Invariant: attach() succeeds only for a fabric that
// some other process keeps alive.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "softhca/engine/process.h"

namespace softhcactl {

struct PortView {
  std::string device;
  unsigned port = 0;
  bool up = false;
  const softhca::PortConf* conf = nullptr;
  std::vector<std::optional<softhca::GidConf>> gids;  // by index; nothing: an empty place
};

struct ProcessView {
  uint32_t slot = 0;
  int pid = 0;
  unsigned qps = 0;
};

struct QpView {
  uint32_t qpn = 0;
  int pid = 0;
  uint32_t type = 0;
  uint32_t state = 0;
  uint32_t dest_qpn = 0;
  std::string device;
  unsigned port = 0;
  uint64_t tx_messages = 0;
  uint64_t tx_bytes = 0;
  uint64_t rnr_naks = 0;
  uint64_t retries = 0;
};

class FabricAdmin {
 public:
  static tl::expected<std::unique_ptr<FabricAdmin>, std::string> attach(const std::string& fabric);
  ~FabricAdmin();
  FabricAdmin(const FabricAdmin&) = delete;
  FabricAdmin& operator=(const FabricAdmin&) = delete;

  const std::string& name() const { return name_; }
  const softhca::FabricConf& conf() const { return fabric_.conf; }
  std::vector<PortView> ports() const;
  std::vector<ProcessView> processes();
  std::vector<QpView> qps();

  // Whether the port changed; a message if there is no such port.
  tl::expected<bool, std::string> set_port(const std::string& device, unsigned port, bool up);
  // Exchanges two places of a port's GID table. Whether that changed anything; a message if there
  // is no such port.
  tl::expected<bool, std::string> swap_gids(const std::string& device, unsigned port, unsigned a,
                                            unsigned b);
  struct FaultView {
    uint32_t rule = 0;
    std::string text;
    uint64_t seed = 0;
    uint64_t hits = 0;
    bool everybody = false;  // added here; else only for those who were started with it
  };
  std::vector<FaultView> faults() const;
  // Puts rules in force for every process; their number, or a message.
  tl::expected<std::size_t, std::string> add_faults(const std::string& text);
  // Takes all rules away, and ports up that they took down.
  void clear_faults();

  // Counters to zero, ports as configured.
  void reset();

 private:
  explicit FabricAdmin(std::string name) : name_(std::move(name)) {}
  template <typename Visit>
  void for_each_qp(Visit visit);
  tl::expected<unsigned, std::string> find_port(const std::string& device, unsigned port) const;

  std::string name_;
  softhca::RealClock clock_;
  softhca::Fabric fabric_;
  std::unique_ptr<softhca::Process> process_;
};

}  // namespace softhcactl
