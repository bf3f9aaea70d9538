// Memory regions: registration with the checks of a real device (access combination, pinning of the
// pages, the memlock limit) and the key look-up that both sides of a transfer use.
// Keys are (index << 8 | generation); lkey == rkey. An entry is public from the store of its key to
// the clearing of it; deregistration then waits for transfers that had found it (wait_for_busy).
#pragma once

#include <infiniband/verbs.h>

#include "softhca/engine/context.h"

namespace softhca {

Mr* reg_mr(Pd& pd, void* addr, std::size_t length, uint64_t iova, unsigned access);
int dereg_mr(Mr* mr);

// The entry of `key` in the process at `base`, nullptr if the key is not registered.
inline const MrShared* find_mr(const char* base, const ProcessShared& hdr, uint32_t key) noexcept {
  const uint32_t index = key >> 8;
  if (index >= kMrChunks * kMrChunk) return nullptr;
  const Off chunk = hdr.mr_chunks[index >> kMrChunkBits].load(std::memory_order_acquire);
  if (chunk == 0) return nullptr;
  const auto* entry = reinterpret_cast<const MrShared*>(base + chunk) + (index & (kMrChunk - 1));
  return entry->key.load(std::memory_order_acquire) == key ? entry : nullptr;
}

// Where `addr` under `key` is in the owner's memory, without any check; also while the region is
// being deregistered.
inline uint64_t host_address(const Peer& owner, uint32_t key, uint64_t addr) noexcept {
  const uint32_t index = key >> 8;
  const Off chunk = owner.hdr->mr_chunks[index >> kMrChunkBits].load(std::memory_order_relaxed);
  const MrShared* mr = owner.at<MrShared>(chunk) + (index & (kMrChunk - 1));
  return addr - mr->iova + mr->host;
}

// Translates [addr, addr+length) under `key` for a user of `pd` that needs `access`; false =
// refused.
inline bool translate(const char* base, const ProcessShared& hdr, uint32_t key, uint32_t pd,
                      uint32_t access, uint64_t addr, uint64_t length, uint64_t* host) noexcept {
  const MrShared* mr = find_mr(base, hdr, key);
  if (mr == nullptr || mr->pd != pd || (mr->access & access) != access) return false;
  const uint64_t offset = addr - mr->iova;
  if (addr < mr->iova || offset > mr->length || length > mr->length - offset) return false;
  *host = mr->host + offset;
  return true;
}

}  // namespace softhca
