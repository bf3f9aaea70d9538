// Nic: one opened RDMA device of this process, shared by the rails on its ports: context,
// protection domain, limits.
//
// Thread contract: immutable after open(), but for the flags, which any thread sets and reads.
// Invariant: outlives every object made on it (rails are destroyed first).
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "plugin/verbs/api.h"
#include "plugin/verbs/device.h"
#include "plugin/verbs/error.h"
#include "plugin/verbs/unique.h"

namespace mend::conn {

// Whether the device raises LAST_WQE_REACHED for SRQ-attached QPs; learned from the first fences.
enum class LastWqe : std::uint8_t { Unknown, Delivered, Missing };

class Nic {
 public:
  // Opens the device, allocates the protection domain and makes its async events readable without
  // blocking.
  static Result<std::unique_ptr<Nic>> open(const verbs::Api& api, ibv_device* device);

  const verbs::Api& api() const { return api_; }
  ibv_context* context() const { return context_.get(); }
  ibv_pd* pd() const { return pd_.get(); }
  const verbs::DeviceCaps& caps() const { return caps_; }
  const std::string& name() const { return caps_.name; }

  // IBV_EVENT_DEVICE_FATAL was seen (or a call gave EIO): every QP of it is as good as fenced.
  void set_fatal() { fatal_.store(true, std::memory_order_release); }
  bool fatal() const { return fatal_.load(std::memory_order_acquire); }

  LastWqe last_wqe() const { return last_wqe_.load(std::memory_order_relaxed); }
  void set_last_wqe(LastWqe known) { last_wqe_.store(known, std::memory_order_relaxed); }

 private:
  Nic(const verbs::Api& api, verbs::Context context, verbs::Pd pd, verbs::DeviceCaps caps);

  const verbs::Api& api_;
  verbs::Context context_;
  verbs::Pd pd_;
  verbs::DeviceCaps caps_;
  std::atomic<bool> fatal_{false};
  std::atomic<LastWqe> last_wqe_{LastWqe::Unknown};
};

}  // namespace mend::conn
