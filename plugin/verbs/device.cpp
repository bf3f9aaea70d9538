#include "plugin/verbs/device.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

namespace mend::verbs {
namespace {

std::uint32_t not_negative(int value) { return value > 0 ? static_cast<std::uint32_t>(value) : 0; }

}  // namespace

Result<DeviceList> DeviceList::query(const Api& api) {
  int count = 0;
  errno = 0;
  ibv_device** devices = api.get_device_list(&count);
  if (devices == nullptr) {
    const int code = errno != 0 ? errno : ENODEV;
    return fail(code, "get_device_list",
                fmt::format("'{}' cannot list RDMA devices: {}", api.library, std::strerror(code)));
  }
  return DeviceList(api, devices, not_negative(count));
}

DeviceList::DeviceList(DeviceList&& other) noexcept
    : api_(other.api_),
      devices_(std::exchange(other.devices_, nullptr)),
      count_(std::exchange(other.count_, 0)) {}

DeviceList::~DeviceList() {
  if (devices_ != nullptr) api_->free_device_list(devices_);
}

ibv_device* DeviceList::find(const std::string& name) const {
  for (std::size_t i = 0; i < count_; ++i) {
    if (name == api_->get_device_name(devices_[i])) return devices_[i];
  }
  return nullptr;
}

int numa_node_of(const ibv_device& device) {
  const std::size_t length = strnlen(device.ibdev_path, sizeof device.ibdev_path);
  std::ifstream file(std::string(device.ibdev_path, length) + "/device/numa_node");
  int node = -1;
  return file >> node ? node : -1;
}

Result<Context> open_device(const Api& api, ibv_device* device) {
  errno = 0;
  ibv_context* context = api.open_device(device);
  if (context == nullptr) {
    const int code = errno != 0 ? errno : ENODEV;
    const char* name = api.get_device_name(device);
    return fail(
        code, "open_device",
        fmt::format(
            "cannot open RDMA device {}: {}{}", name, std::strerror(code),
            code == EACCES || code == EPERM ? " (no permission on /dev/infiniband/uverbs*)" : ""));
  }
  return Context(context, api.close_device);
}

Result<DeviceCaps> query_caps(const Api& api, ibv_context* context) {
  ibv_device_attr attr{};
  const char* name = api.get_device_name(context->device);
  if (const int rc = api.query_device(context, &attr); rc != 0) {
    const int code = rc > 0 ? rc : errno;
    return fail(code, "query_device",
                fmt::format("query_device on {}: {}", name, std::strerror(code)));
  }
  DeviceCaps caps;
  caps.name = name;
  caps.firmware.assign(attr.fw_ver, strnlen(attr.fw_ver, sizeof(attr.fw_ver)));
  caps.vendor_id = attr.vendor_id;
  caps.vendor_part_id = attr.vendor_part_id;
  caps.ports = attr.phys_port_cnt;
  caps.max_qp = not_negative(attr.max_qp);
  caps.max_qp_wr = not_negative(attr.max_qp_wr);
  caps.max_sge = not_negative(attr.max_sge);
  caps.max_cq = not_negative(attr.max_cq);
  caps.max_cqe = not_negative(attr.max_cqe);
  caps.max_srq = not_negative(attr.max_srq);
  caps.max_srq_wr = not_negative(attr.max_srq_wr);
  caps.max_mr = not_negative(attr.max_mr);
  caps.max_ah = not_negative(attr.max_ah);
  caps.max_mr_size = attr.max_mr_size;
  caps.max_qp_rd_atom = not_negative(attr.max_qp_rd_atom);
  caps.max_qp_init_rd_atom = not_negative(attr.max_qp_init_rd_atom);
  return caps;
}

}  // namespace mend::verbs
