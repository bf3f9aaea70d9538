// The segment that all processes of one fabric share: slots, ports, the QP directory. Shared mode
// keeps it in /dev/shm/softhca.<fabric>.<uid> (0600); in-process mode in anonymous memory.
// Liveness: every attached process holds a POSIX record lock on byte `slot` of the file; the kernel
// drops it however the process ends, and pid reuse cannot fake it. One more byte serialises attach
// and detach. A segment on which nobody holds a byte is stale and is initialised anew.
// Locks are an inode's, files are removed by name: whoever removes one holds the attach lock of the
// inode that the fabric's name leads to at that time. The name stays what it is meanwhile, since
// nobody else removes it and nobody replaces what exists.
// The descriptor is never closed while attached: closing any descriptor of the file would drop this
// process's locks. All members but the constructor-like attach/detach are thread safe.
#pragma once

#include <cstdint>
#include <string>

#include "softhca/engine/segment.h"
#include "softhca/engine/shm_layout.h"

namespace softhca {

class GlobalSegment {
 public:
  GlobalSegment() = default;
  ~GlobalSegment() = default;
  GlobalSegment(const GlobalSegment&) = delete;
  GlobalSegment& operator=(const GlobalSegment&) = delete;

  int create_anonymous();
  // Opens or creates the file and leaves the attach lock held; 0 or errno with `why` filled.
  int open_locked(const std::string& fabric, std::string* why);
  void unlock_attach();
  // After a failed attach: lets go of the file, so that another attempt can start over.
  void close() noexcept;
  void lock_attach();
  // The configuration text of a fabric that exists; empty otherwise. Only before this process has
  // attached: it closes a descriptor of the file.
  static std::string peek_conf(const std::string& fabric);

  // Under the attach lock: a slot that no living process holds, with a new generation. The record
  // lock on its byte is taken. -1: all slots are in use.
  int claim_slot();
  void release_slot(uint32_t slot);
  // Whether the process that attached as (slot, gen) still lives. Not to be asked about oneself.
  bool alive(uint32_t slot, uint32_t gen) const;
  bool anyone_else_attached(uint32_t own_slot) const;
  // Under the attach lock. Nothing, if the name has come to mean another fabric's file. `fd`: the
  // process' file, or -1 if it could not be opened.
  void unlink_file();
  void unlink_process_file(uint32_t slot, uint32_t gen, int fd) const;

  GlobalShared* shared() const noexcept { return shared_; }
  bool anonymous() const noexcept { return path_.empty(); }
  const std::string& path() const noexcept { return path_; }
  std::string process_path(uint32_t slot, uint32_t gen) const;
  const std::string& fabric() const noexcept { return fabric_; }

 private:
  int initialise(int fd, std::string* why);
  // Whether the fabric's name leads to the file that is open here.
  bool has_its_name() const;
  bool byte_held(unsigned byte) const;
  bool any_slot_held() const;
  void remove_process_files() const;
  // Removes the segments of other fabrics of this user that no living process holds.
  void remove_stale_fabrics() const;

  std::string fabric_;
  std::string path_;
  Segment segment_;
  GlobalShared* shared_ = nullptr;
};

// SOFTHCA_FABRIC, else the job's name space (PMIX_NAMESPACE, SLURM), else "default"; only
// characters that are safe in a file name.
std::string fabric_name_from_env();

}  // namespace softhca
