// LaneTable: flat hash from QP number to lane, looked up once per completion: linear probing, no
// allocation on lookup.
//
// Thread contract: none of its own; the Poller's poll lock covers it. Pointers from find() are
// valid until the next add or remove.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/recv_pool.h"
#include "plugin/verbs/types.h"

namespace mend::ops {

class Channel;

struct LaneEntry {
  Qpn qpn{0xffffffffu};  // QP numbers have 24 bits
  Epoch epoch;
  Channel* channel = nullptr;  // nullptr: free slot
  DeliverFn deliver = nullptr;
  void* context = nullptr;
};
static_assert(sizeof(LaneEntry) == 32);

class LaneTable {
 public:
  LaneTable() : slots_(kInitialSlots) {}

  LaneEntry* find(Qpn qpn) {
    if (last_->qpn == qpn) [[likely]] {
      return last_;
    }
    return search(qpn);
  }

  // Replaces an entry of the same QP number (its old QP is gone, the device recycled the number).
  void add(const LaneEntry& entry) {
    if (LaneEntry* same = find(entry.qpn)) {
      *same = entry;
      return;
    }
    if ((count_ + 1) * 2 > slots_.size()) {
      rehash(slots_.size() * 2);
    }
    while (insert(entry) > kLongProbe && slots_.size() < kMostSlots) {
      remove_slot(entry.qpn);
      rehash(slots_.size() * 2);
    }
    ++count_;
  }

  bool remove(Qpn qpn) {
    LaneEntry* found = find(qpn);
    if (found == nullptr) {
      return false;
    }
    --count_;
    close_gap(static_cast<std::uint32_t>(found - slots_.data()));
    return true;
  }

  std::uint32_t size() const { return count_; }

  template <typename Visit>
  void for_each(Visit visit) {
    for (LaneEntry& slot : slots_) {
      if (slot.channel != nullptr) {
        visit(slot);
      }
    }
  }

 private:
  LaneEntry* search(Qpn qpn) {
    LaneEntry* const slots = slots_.data();
    for (std::uint32_t i = home(qpn);; i = (i + 1) & mask_) {
      LaneEntry& slot = slots[i];
      if (slot.qpn == qpn) [[likely]] {
        last_ = &slot;
        return &slot;
      }
      if (slot.channel == nullptr) {
        return nullptr;
      }
    }
  }

  static constexpr std::uint32_t kInitialSlots = 16;
  static constexpr std::uint32_t kLongProbe = 16;
  static constexpr std::size_t kMostSlots = 1u << 16;  // 2 MiB; beyond, long probes are accepted

  // Devices hand out QP numbers one after the other (or with a random part on top), so the low bits
  // are as good as any hash; add() grows the table where they are not.
  std::uint32_t home(Qpn qpn) const { return qpn.value & mask_; }

  // Returns how far from its home the entry came to lie.
  std::uint32_t insert(const LaneEntry& entry) {
    std::uint32_t i = home(entry.qpn);
    while (slots_[i].channel != nullptr) {
      i = (i + 1) & mask_;
    }
    slots_[i] = entry;
    return (i - home(entry.qpn)) & mask_;
  }
  void remove_slot(Qpn qpn) { close_gap(static_cast<std::uint32_t>(find(qpn) - slots_.data())); }

  void rehash(std::size_t slots) {
    std::vector<LaneEntry> old(slots);
    old.swap(slots_);
    mask_ = static_cast<std::uint32_t>(slots) - 1;
    last_ = slots_.data();
    for (const LaneEntry& entry : old) {
      if (entry.channel != nullptr) {
        insert(entry);
      }
    }
  }

  // Moves back the entries whose probe sequence runs over the hole, so that lookups need no
  // tombstones.
  void close_gap(std::uint32_t hole) {
    for (std::uint32_t i = (hole + 1) & mask_; slots_[i].channel != nullptr; i = (i + 1) & mask_) {
      const std::uint32_t wanted = home(slots_[i].qpn);
      if (((i - wanted) & mask_) >= ((i - hole) & mask_)) {
        slots_[hole] = slots_[i];
        hole = i;
      }
    }
    slots_[hole] = LaneEntry{};
    last_ = slots_.data();
  }

  std::vector<LaneEntry> slots_;
  LaneEntry* last_ = slots_.data();  // found last, messages come in bursts; or any other slot
  std::uint32_t mask_ = kInitialSlots - 1;
  std::uint32_t count_ = 0;
};

}  // namespace mend::ops
