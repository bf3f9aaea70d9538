// Devices and ports: what is there, what it can do, how fast it is, which GID and partition key to
// use.
//
// Thread contract: plain queries through the table; any thread, they may block on the device's
// driver for milliseconds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plugin/verbs/api.h"
#include "plugin/verbs/error.h"
#include "plugin/verbs/gid.h"
#include "plugin/verbs/unique.h"

namespace mend::verbs {

// The devices of a library; the ibv_device pointers are valid while the list lives (an open context
// keeps its own).
class DeviceList {
 public:
  static Result<DeviceList> query(const Api& api);
  DeviceList(DeviceList&& other) noexcept;
  DeviceList& operator=(DeviceList&&) = delete;
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;
  ~DeviceList();

  std::size_t size() const { return count_; }
  ibv_device* operator[](std::size_t index) const { return devices_[index]; }
  ibv_device* find(const std::string& name) const;  // nullptr: no such device

 private:
  DeviceList(const Api& api, ibv_device** devices, std::size_t count)
      : api_(&api), devices_(devices), count_(count) {}
  const Api* api_;
  ibv_device** devices_;
  std::size_t count_;
};

// Limits of a device, from ibv_query_device, none negative.
struct DeviceCaps {
  std::string name;
  std::string firmware;
  std::uint32_t vendor_id = 0, vendor_part_id = 0;
  std::uint32_t ports = 0;
  std::uint32_t max_qp = 0, max_qp_wr = 0, max_sge = 0;
  std::uint32_t max_cq = 0, max_cqe = 0;
  std::uint32_t max_srq = 0, max_srq_wr = 0;  // max_srq 0: the device has no shared receive queues
  std::uint32_t max_mr = 0, max_ah = 0;
  std::uint64_t max_mr_size = 0;
  std::uint32_t max_qp_rd_atom = 0, max_qp_init_rd_atom = 0;  // as responder, as requester
  bool has_srq() const { return max_srq > 0 && max_srq_wr > 0; }
};

// Where the driver says that the device is attached: the OS number of a NUMA node, from
// device/numa_node below the device's ibdev_path; -1: nowhere in particular, or unknown.
int numa_node_of(const ibv_device& device);

Result<Context> open_device(const Api& api, ibv_device* device);
Result<DeviceCaps> query_caps(const Api& api, ibv_context* context);

struct PortInfo {
  std::uint8_t port = 0;  // 1-based
  bool active = false;
  ibv_port_state state = IBV_PORT_NOP;
  LinkLayer link = LinkLayer::Infiniband;
  ibv_mtu active_mtu = IBV_MTU_256;
  std::uint16_t lid = 0, sm_lid = 0;
  std::uint8_t lid_mask_bits = 0;
  bool grh_required = false;  // RoCE, or an InfiniBand port that says so
  std::uint64_t max_message = 0;
  std::uint32_t speed_mbps =
      0;  // data rate, encoding overhead taken off; 0 where the device does not say
  std::uint32_t gids = 0, pkeys = 0;  // table lengths
};
Result<PortInfo> query_port(const Api& api, ibv_context* context, std::uint8_t port);

// Non-zero entries only. Reads what the library offers: type with the entry, or the bare GID.
std::vector<GidEntry> read_gid_table(const Api& api, ibv_context* context, const PortInfo& port);

struct PkeyChoice {
  std::uint16_t index = 0;
  std::uint16_t value = 0;  // host order, membership bit included
};
// Table index of a partition key. wanted 0 = the first usable one; the membership bit (0x8000) is
// not compared.
Result<PkeyChoice> find_pkey(const Api& api, ibv_context* context, const PortInfo& port,
                             int wanted);

// Pure helpers.
std::uint32_t mtu_bytes(ibv_mtu mtu);
Result<ibv_mtu> mtu_from_bytes(int bytes);  // 256, 512, 1024, 2048, 4096
std::uint32_t port_speed_mbps(std::uint8_t active_width, std::uint8_t active_speed);
const char* port_state_name(ibv_port_state state);

}  // namespace mend::verbs
