// AmoTable: the atomics of one channel that wait for their response. The id on the wire is a slot
// and its generation, so a forged or late response finds nothing.
//
// Thread contract: none of its own; the channel's lock covers it.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/request.h"

namespace mend::ops {

class AmoTable {
 public:
  std::uint32_t add(AmoCall& call) {
    if (free_ == kNone) {
      free_ = static_cast<std::uint32_t>(slots_.size());
      slots_.push_back(Slot{nullptr, kNone, 1});
    }
    const std::uint32_t index = free_;
    Slot& slot = slots_[index];
    free_ = slot.next_free;
    slot.call = &call;
    ++live_;
    return (slot.generation << kSlotBits) | index;
  }

  AmoCall* find(std::uint32_t id) {
    Slot* slot = slot_of(id);
    return slot == nullptr ? nullptr : slot->call;
  }

  AmoCall* take(std::uint32_t id) {
    Slot* slot = slot_of(id);
    if (slot == nullptr) {
      return nullptr;
    }
    AmoCall* call = slot->call;
    slot->call = nullptr;
    slot->generation = (slot->generation + 1) & kGenerationMask;
    slot->next_free = free_;
    free_ = id & kSlotMask;
    --live_;
    return call;
  }

  // Takes all that are left.
  template <typename Fn>
  void take_all(Fn&& fn) {
    for (std::uint32_t index = 0; index < slots_.size(); ++index) {
      const Slot& slot = slots_[index];
      if (slot.call != nullptr) {
        fn(*take((slot.generation << kSlotBits) | index));
      }
    }
  }

  std::uint32_t live() const { return live_; }

 private:
  static constexpr unsigned kSlotBits = 20;  // a million atomics in flight per peer
  static constexpr std::uint32_t kSlotMask = (1u << kSlotBits) - 1;
  static constexpr std::uint32_t kGenerationMask = (1u << (32 - kSlotBits)) - 1;
  static constexpr std::uint32_t kNone = 0xffffffffu;

  struct Slot {
    AmoCall* call;
    std::uint32_t next_free;
    std::uint32_t generation;
  };

  Slot* slot_of(std::uint32_t id) {
    const std::uint32_t index = id & kSlotMask;
    if (index >= slots_.size()) {
      return nullptr;
    }
    Slot& slot = slots_[index];
    return slot.call != nullptr && slot.generation == id >> kSlotBits ? &slot : nullptr;
  }

  std::vector<Slot> slots_;
  std::uint32_t free_ = kNone;
  std::uint32_t live_ = 0;
};

}  // namespace mend::ops
