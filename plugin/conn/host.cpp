#include "plugin/conn/host.h"

#include <random>

#include "plugin/conn/service_thread.h"
#include "plugin/conn/worker.h"

namespace mend::conn {
namespace {

class Machine final : public Host {
 public:
  Result<std::unique_ptr<Service>> make_service() override {
    auto thread = ServiceThread::create();
    if (!thread) return tl::unexpected(thread.error());
    return std::unique_ptr<Service>(std::move(*thread));
  }
  std::unique_ptr<WorkQueue> make_worker() override { return std::make_unique<Worker>(); }
  std::uint64_t random_seed() override {
    std::random_device device;
    return std::uint64_t{device()} << 32 | device();
  }
};

}  // namespace

Host& this_machine() {
  static Machine machine;
  return machine;
}

}  // namespace mend::conn
