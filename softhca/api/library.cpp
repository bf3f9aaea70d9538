#include "softhca/api/library.h"

#include <pthread.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "softhca/api/operations.h"
#include "softhca/engine/shared_conf.h"

namespace softhca {

namespace {

void complain(const std::string& what, int error) {
  std::fprintf(stderr, "softhca: %s%s%s\n", what.c_str(), error != 0 ? ": " : "",
               error != 0 ? std::strerror(error) : "");
}

}  // namespace

Library& Library::get() {
  static Library library;
  return library;
}

Library::Library() { ::pthread_atfork(nullptr, nullptr, &Library::in_forked_child); }

Library::~Library() {
  if (!fleet_ || !fleet_->process) return;
  fleet_->process->detach();
  // Some programs call verbs from their own exit handlers: objects that are still open stay in
  // memory and answer like those of a forked child.
  if (!fleet_->process->contexts().empty()) (void)fleet_.release();
}

void Library::in_forked_child() {
  Library& self = get();
  new (&self.mutex_) std::mutex;  // another thread of the parent may have held it
  if (!self.fleet_) return;
  // Directories belong to the parent: leave them alone.
  for (auto& sysfs : self.fleet_->sysfs) (void)sysfs.release();
  self.fleet_->sysfs.clear();
  if (!self.fleet_->process) return;
  self.fleet_->process->make_inert();
  self.inherited_.push_back(std::move(self.fleet_));
}

int Library::load() {
  if (fleet_) return 0;
  auto fleet = std::make_unique<Fleet>();
  std::string text = GlobalSegment::peek_conf(fabric_name_from_env());
  auto conf = text.empty() ? load_conf_from_env() : parse_conf(text, "fabric");
  if (!conf) {
    complain(conf.error().str(), 0);
    return EINVAL;
  }
  auto faults = load_faults_from_env();
  if (!faults) {
    complain(faults.error().str(), 0);
    return EINVAL;
  }
  if (!arm_kill_points_from_env()) return EINVAL;
  fleet->fabric.conf = std::move(*conf);
  fleet->faults = std::move(*faults);
  fleet->fabric.clock = &fleet->clock;
  unsigned index = 0;
  for (const DeviceConf& device : fleet->fabric.conf.devices) {
    fleet->devices.push_back(make_device(device, index++));
    if (device.numa_node < 0) continue;
    auto sysfs = SysfsDir::create(device.name, device.numa_node);
    if (!sysfs) continue;
    ibv_device& dev = fleet->devices.back()->dev;
    std::snprintf(dev.ibdev_path, sizeof(dev.ibdev_path), "%s", sysfs->path().c_str());
    fleet->sysfs.push_back(std::move(sysfs));
  }
  fleet_ = std::move(fleet);
  return 0;
}

// The fabric's configuration took the place of the one that the device list was made from.
void Library::rebind_devices() {
  const auto& confs = fleet_->fabric.conf.devices;
  for (auto& device : fleet_->devices) {
    device->conf = device->index < confs.size() ? &confs[device->index] : nullptr;
  }
}

// The schedule is in force for everybody who was given the same one.
int Library::publish_faults(Process& process, std::string* why) {
  const FaultList& list = fleet_->faults;
  const uint32_t origin = list.empty() ? 0 : origin_of(list);
  process.identify(rank_from_env(), origin);
  if (list.empty() ||
      board_add(fleet_->fabric.global.shared()->faults, list, origin, fleet_->clock.now())) {
    return 0;
  }
  *why = "SOFTHCA_FAULTS: the fabric has no room for so many rules";
  return ENOSPC;
}

int Library::attach() {
  if (fleet_->process) return 0;
  std::string why;
  GlobalSegment& global = fleet_->fabric.global;
  int rc = global.open_locked(fabric_name_from_env(), &why);
  if (rc == 0) {
    rc = agree_on_conf(*global.shared(), &fleet_->fabric.conf, &why);
    if (rc == 0) rebind_devices();
    auto process = std::make_unique<Process>(fleet_->fabric);
    if (rc == 0) rc = publish_faults(*process, &why);
    if (rc == 0) rc = process->attach(&why);
    global.unlock_attach();
    if (rc == 0) fleet_->process = std::move(process);
  }
  if (rc != 0) {
    complain("cannot attach to the fabric: " + why, rc);
    global.close();  // the device list stays: the application may hold pointers into it
    return rc;
  }
  // Peers move data in and out of this process' memory.
  ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  return 0;
}

const std::vector<std::unique_ptr<Device>>* Library::devices() {
  std::lock_guard guard(mutex_);
  if (const int rc = load(); rc != 0) {
    errno = rc;
    return nullptr;
  }
  return &fleet_->devices;
}

Context* Library::open(Device& device) {
  std::lock_guard guard(mutex_);
  int rc = load();
  if (rc == 0) rc = attach();
  if (rc != 0) {
    errno = rc;
    return nullptr;
  }
  // A forked child may hold a device of its parent's list: same index, own list.
  if (device.index >= fleet_->devices.size() || fleet_->devices[device.index]->conf == nullptr) {
    errno = ENODEV;
    return nullptr;
  }
  Context* ctx = open_context(*fleet_->process, *fleet_->devices[device.index]);
  if (ctx != nullptr) fill_operations(*ctx);
  return ctx;
}

}  // namespace softhca
