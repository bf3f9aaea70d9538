// Unique<T>: the one owner of a verbs object, move-only, with its destroy function. Objects are
// made only by the factories of plugin/verbs/objects.h, so that an Unique that holds something
// always holds a valid object.
//
// Thread contract: none of its own; as thread-safe as the object. Destruction order is member order
// of the owner (Context, Pd, CompChannel, Cq, Srq, Qp). A destroy function that fails is logged and
// counted, never thrown: the object then leaks, which is better than freeing what the device still
// uses.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <utility>

namespace mend::verbs {

// Logs "destroying a <what> failed" and counts it.
void report_destroy_failure(const char* what, int code);
std::uint64_t destroy_failures();

template <typename T>
struct ObjectName;
template <>
struct ObjectName<ibv_context> {
  static constexpr const char* value = "device context";
};
template <>
struct ObjectName<ibv_pd> {
  static constexpr const char* value = "protection domain";
};
template <>
struct ObjectName<ibv_comp_channel> {
  static constexpr const char* value = "completion channel";
};
template <>
struct ObjectName<ibv_cq> {
  static constexpr const char* value = "completion queue";
};
template <>
struct ObjectName<ibv_srq> {
  static constexpr const char* value = "shared receive queue";
};
template <>
struct ObjectName<ibv_qp> {
  static constexpr const char* value = "queue pair";
};
template <>
struct ObjectName<ibv_mr> {
  static constexpr const char* value = "memory region";
};
template <>
struct ObjectName<ibv_ah> {
  static constexpr const char* value = "address handle";
};

template <typename T>
class Unique {
 public:
  using Destroy = int (*)(T*);

  Unique() = default;
  Unique(T* object, Destroy destroy) : object_(object), destroy_(destroy) {}
  Unique(Unique&& other) noexcept
      : object_(std::exchange(other.object_, nullptr)), destroy_(other.destroy_) {}
  Unique& operator=(Unique&& other) noexcept {
    if (this != &other) {
      reset();
      object_ = std::exchange(other.object_, nullptr);
      destroy_ = other.destroy_;
    }
    return *this;
  }
  Unique(const Unique&) = delete;
  Unique& operator=(const Unique&) = delete;
  ~Unique() { reset(); }

  T* get() const { return object_; }
  T* operator->() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }

  T* release() { return std::exchange(object_, nullptr); }  // the caller owns it now

  // Destroys the object now. Returns the errno of a refusal (EBUSY, ...), after which it is leaked.
  int reset() {
    T* object = std::exchange(object_, nullptr);
    if (object == nullptr) return 0;
    const int code = destroy_(object);
    if (code != 0) report_destroy_failure(ObjectName<T>::value, code);
    return code;
  }

 private:
  T* object_ = nullptr;
  Destroy destroy_ = nullptr;
};

using Context = Unique<ibv_context>;
using Pd = Unique<ibv_pd>;
using CompChannel = Unique<ibv_comp_channel>;
using Cq = Unique<ibv_cq>;
using Srq = Unique<ibv_srq>;
using Qp = Unique<ibv_qp>;
using Mr = Unique<ibv_mr>;
using Ah = Unique<ibv_ah>;

}  // namespace mend::verbs
