// Moving bytes between address spaces: memcpy where the target is in this one, process_vm_* where
// it is not. 0 or errno (ESRCH: the process is gone, EFAULT: memory is gone, EPERM: not allowed).
// dma_write stores the last bytes (up to 8, up to the last aligned word) separately and after all
// others, because programs poll the end of what an RDMA write places and a real device writes it
// last. Stateless; any thread.
#pragma once

#include <sys/uio.h>

#include <cstdint>

#include "softhca/engine/process.h"

namespace softhca {

// `local` holds `count` pieces of together `length` bytes.
int dma_write(const Peer& peer, uint64_t remote, const iovec* local, unsigned count,
              uint64_t length);
int dma_read(const Peer& peer, uint64_t remote, const iovec* local, unsigned count,
             uint64_t length);
// Both sides in pieces; for receives into several segments.
int dma_scatter(const Peer& peer, const iovec* remote, unsigned remote_count, const iovec* local,
                unsigned local_count, uint64_t length);

}  // namespace softhca
