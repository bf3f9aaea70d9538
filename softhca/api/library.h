// The process-wide face of the engine for programs that use the libibverbs ABI: reads the
// configuration, attaches to the fabric when the first device is opened and stays attached until
// the library is unloaded. After a fork the child starts over; what it inherited is inert.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "softhca/api/sysfs_dir.h"
#include "softhca/engine/context.h"
#include "softhca/engine/process.h"

namespace softhca {

class Library {
 public:
  static Library& get();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  // nullptr with errno set: the configuration is wrong (said once on stderr).
  const std::vector<std::unique_ptr<Device>>* devices();
  Context* open(Device& device);

 private:
  Library();
  ~Library();

  int load();
  int attach();
  void rebind_devices();
  int publish_faults(Process& process, std::string* why);
  static void in_forked_child();

  struct Fleet {  // one attachment; outlives it because contexts point into it
    RealClock clock;
    Fabric fabric;
    FaultList faults;
    std::vector<std::unique_ptr<Device>> devices;
    std::vector<std::unique_ptr<SysfsDir>> sysfs;
    std::unique_ptr<Process> process;
  };

  std::mutex mutex_;
  std::unique_ptr<Fleet> fleet_;
  std::vector<std::unique_ptr<Fleet>> inherited_;  // of our parent: inert
};

}  // namespace softhca
