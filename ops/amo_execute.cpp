#include "ops/amo_execute.h"

#include <algorithm>
#include <atomic>
#include <type_traits>

namespace mend::ops {
namespace {

// Min and Max have no instruction of their own: a compare-and-swap loop.
template <typename T, typename Choose>
T fetch_choose(std::atomic_ref<T> target, T operand, Choose choose) {
  T old = target.load(std::memory_order_relaxed);
  while (!target.compare_exchange_weak(old, choose(old, operand), std::memory_order_acq_rel,
                                       std::memory_order_relaxed)) {
  }
  return old;
}

template <typename T>
T execute(AmoOp op, T& memory, T operand, T compare) {
  using Signed = std::make_signed_t<T>;
  const std::atomic_ref<T> target(memory);
  switch (op) {
    case AmoOp::Add:
      return target.fetch_add(operand, std::memory_order_acq_rel);
    case AmoOp::And:
      return target.fetch_and(operand, std::memory_order_acq_rel);
    case AmoOp::Or:
      return target.fetch_or(operand, std::memory_order_acq_rel);
    case AmoOp::Xor:
      return target.fetch_xor(operand, std::memory_order_acq_rel);
    case AmoOp::Swap:
      return target.exchange(operand, std::memory_order_acq_rel);
    case AmoOp::Cswap:
      target.compare_exchange_strong(compare, operand, std::memory_order_acq_rel);
      return compare;  // holds the old value either way
    case AmoOp::Min:
      return fetch_choose(target, operand, [](T a, T b) {
        return static_cast<T>(std::min(static_cast<Signed>(a), static_cast<Signed>(b)));
      });
    case AmoOp::Max:
      return fetch_choose(target, operand, [](T a, T b) {
        return static_cast<T>(std::max(static_cast<Signed>(a), static_cast<Signed>(b)));
      });
  }
  return 0;
}

}  // namespace

std::uint64_t execute_amo(AmoOp op, std::uint8_t width, void* address, std::uint64_t operand,
                          std::uint64_t compare) {
  if (width == 4) {
    return execute(op, *static_cast<std::uint32_t*>(address), static_cast<std::uint32_t>(operand),
                   static_cast<std::uint32_t>(compare));
  }
  return execute(op, *static_cast<std::uint64_t*>(address), operand, compare);
}

}  // namespace mend::ops
