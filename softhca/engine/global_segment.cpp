#include "softhca/engine/global_segment.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>
#include <vector>

#include "softhca/engine/kill_point.h"

namespace softhca {

namespace {

constexpr const char* kDirectory = "/dev/shm/";
constexpr std::size_t kPageBytes = 4096;
constexpr off_t kAttachByte = 1 << 20;  // beyond any slot

struct flock record(short type, off_t byte) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = byte;
  lock.l_len = 1;
  return lock;
}

std::string path_of(const std::string& fabric) {
  return kDirectory + ("softhca." + fabric + "." + std::to_string(::geteuid()));
}

bool same_file(int fd, const std::string& path) {
  struct stat opened {};
  struct stat named {};
  return ::fstat(fd, &opened) == 0 && ::stat(path.c_str(), &named) == 0 &&
         opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

// An error says nothing about the holder, and to take a living one for dead does harm: held.
bool held(int fd, struct flock lock) {
  return ::fcntl(fd, F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

int wait_for_lock(int fd, off_t byte) {
  struct flock lock = record(F_WRLCK, byte);
  while (::fcntl(fd, F_SETLKW, &lock) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

}  // namespace

std::string fabric_name_from_env() {
  std::string name;
  for (const char* var : {"SOFTHCA_FABRIC", "PMIX_NAMESPACE", "SLURM_JOB_ID"}) {
    const char* value = std::getenv(var);
    if (value != nullptr && *value != '\0') {
      name = value;
      break;
    }
  }
  if (name.empty()) name = "default";
  if (name.size() > 100) name.resize(100);
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '_') c = '_';
  }
  return name;
}

int GlobalSegment::create_anonymous() {
  fabric_ = "in-process";
  const int rc = segment_.create_anonymous(sizeof(GlobalShared));
  if (rc != 0) return rc;
  shared_ = segment_.at<GlobalShared>(0);
  shared_->version = kLayoutVersion;
  shared_->layout = layout_hash();
  shared_->magic = kGlobalMagic;
  return 0;
}

std::string GlobalSegment::peek_conf(const std::string& fabric) {
  const std::string path = path_of(fabric);
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return {};
  GlobalSegment probe;
  struct stat st {};
  std::string text;
  if (::fstat(fd, &st) == 0 && static_cast<std::size_t>(st.st_size) >= sizeof(GlobalShared) &&
      probe.segment_.map_file(fd, sizeof(GlobalShared)) == 0) {
    const auto* g = probe.segment_.at<GlobalShared>(0);
    // A segment that nobody uses is stale, whatever it says.
    if (probe.any_slot_held() && g->magic == kGlobalMagic && g->layout == layout_hash() &&
        g->conf_length <= sizeof(g->conf_text)) {
      text.assign(g->conf_text, g->conf_length);
    }
  } else {
    ::close(fd);
  }
  return text;
}

int GlobalSegment::open_locked(const std::string& fabric, std::string* why) {
  fabric_ = fabric;
  path_ = path_of(fabric);
  for (;;) {
    const int fd = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
      *why = "cannot open " + path_;
      return errno;
    }
    int rc = wait_for_lock(fd, kAttachByte);
    if (rc != 0) {
      ::close(fd);
      *why = "cannot lock " + path_;
      return rc;
    }
    // The last process of a fabric unlinks the file under the attach lock: what we opened may be
    // gone by the time we hold it.
    struct stat opened {};
    if (::fstat(fd, &opened) == 0 && same_file(fd, path_)) {
      if (opened.st_uid != ::geteuid()) {
        ::close(fd);
        *why = path_ + " belongs to another user";
        return EACCES;
      }
      rc = initialise(fd, why);
      return rc;
    }
    ::close(fd);
  }
}

int GlobalSegment::initialise(int fd, std::string* why) {
  struct stat st {};
  if (::fstat(fd, &st) != 0) {
    ::close(fd);
    return errno;
  }
  const bool sized = static_cast<std::size_t>(st.st_size) >= sizeof(GlobalShared);
  int rc = segment_.map_file(fd, sizeof(GlobalShared));
  if (rc != 0) {
    *why = "cannot map " + path_;
    return rc;
  }
  if (any_slot_held()) {
    const auto* present = segment_.at<GlobalShared>(0);
    if (!sized || present->magic != kGlobalMagic || present->layout != layout_hash()) {
      *why = path_ + " is in use by another version of libsofthca";
      return EPROTO;
    }
    shared_ = segment_.at<GlobalShared>(0);
    return 0;
  }
  // Nobody is attached: a stale segment of an earlier job, or a new file. Jobs that were killed
  // have names that never come back, so the first process of each job looks for those too.
  remove_stale_fabrics();
  remove_process_files();
  if (::ftruncate(fd, 0) != 0 || ::ftruncate(fd, static_cast<off_t>(sizeof(GlobalShared))) != 0) {
    *why = "cannot size " + path_;
    return errno;
  }
  rc = segment_.commit(sizeof(GlobalShared));
  if (rc != 0) {
    *why = "no room in /dev/shm for " + path_;
    ::unlink(path_.c_str());
    return rc;
  }
  kill_point(KillPoint::global_init_started);
  shared_ = segment_.at<GlobalShared>(0);
  shared_->version = kLayoutVersion;
  shared_->layout = layout_hash();
  shared_->qpn_gen = 1;
  shared_->magic.store(kGlobalMagic, std::memory_order_release);
  return 0;
}

void GlobalSegment::close() noexcept {
  segment_.reset();
  shared_ = nullptr;
}

void GlobalSegment::lock_attach() {
  if (!anonymous()) wait_for_lock(segment_.fd(), kAttachByte);
}

void GlobalSegment::unlock_attach() {
  if (anonymous()) return;
  struct flock lock = record(F_UNLCK, kAttachByte);
  ::fcntl(segment_.fd(), F_SETLK, &lock);
}

bool GlobalSegment::has_its_name() const { return same_file(segment_.fd(), path_); }

bool GlobalSegment::byte_held(unsigned byte) const {
  return held(segment_.fd(), record(F_WRLCK, static_cast<off_t>(byte)));
}

bool GlobalSegment::any_slot_held() const {
  struct flock slots = record(F_WRLCK, 0);
  slots.l_len = kMaxSlots;
  return held(segment_.fd(), slots);
}

int GlobalSegment::claim_slot() {
  for (unsigned i = 0; i < kMaxSlots; ++i) {
    SlotShared& slot = shared_->slots[i];
    if (slot.state != SlotState::Free) continue;
    if (!anonymous()) {
      struct flock lock = record(F_WRLCK, static_cast<off_t>(i));
      if (::fcntl(segment_.fd(), F_SETLK, &lock) != 0) continue;
    }
    ++slot.gen;
    return static_cast<int>(i);
  }
  return -1;
}

void GlobalSegment::release_slot(uint32_t slot) {
  shared_->slots[slot].state = SlotState::Free;
  if (anonymous()) return;
  struct flock lock = record(F_UNLCK, static_cast<off_t>(slot));
  ::fcntl(segment_.fd(), F_SETLK, &lock);
}

bool GlobalSegment::alive(uint32_t slot, uint32_t gen) const {
  if (slot >= kMaxSlots) return false;
  const SlotShared& s = shared_->slots[slot];
  if (s.gen != gen || s.state != SlotState::Live) return false;
  return anonymous() || byte_held(slot);
}

bool GlobalSegment::anyone_else_attached(uint32_t own_slot) const {
  for (unsigned i = 0; i < kMaxSlots; ++i) {
    if (i != own_slot && shared_->slots[i].state == SlotState::Live && byte_held(i)) return true;
  }
  return false;
}

void GlobalSegment::unlink_file() {
  if (anonymous() || !has_its_name()) return;
  // The last one also takes away what processes left that died unnoticed.
  remove_process_files();
  ::unlink(path_.c_str());
}

void GlobalSegment::unlink_process_file(uint32_t slot, uint32_t gen, int fd) const {
  if (anonymous()) return;
  // A new fabric of the name counts its slots and generations from the start again.
  const std::string path = process_path(slot, gen);
  if (fd >= 0 ? same_file(fd, path) : has_its_name()) ::unlink(path.c_str());
}

std::string GlobalSegment::process_path(uint32_t slot, uint32_t gen) const {
  return path_ + "." + std::to_string(slot) + "." + std::to_string(gen);
}

void GlobalSegment::remove_stale_fabrics() const {
  DIR* dir = ::opendir(kDirectory);
  if (dir == nullptr) return;
  const std::string suffix = "." + std::to_string(::geteuid());
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(dir)) {
    const std::string_view name{entry->d_name};
    const bool ours = name.starts_with("softhca.") && name.ends_with(suffix) &&
                      std::count(name.begin(), name.end(), '.') == 2;
    if (ours && kDirectory + std::string(name) != path_) names.emplace_back(name);
  }
  ::closedir(dir);
  for (const std::string& name : names) {
    GlobalSegment other;
    other.path_ = kDirectory + name;
    const int fd = ::open(other.path_.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) continue;
    kill_point(KillPoint::stale_fabric_opened);
    struct flock lock = record(F_WRLCK, kAttachByte);
    const bool locked = ::fcntl(fd, F_SETLK, &lock) == 0;
    // From here on the descriptor belongs to the segment, which closes it.
    if (other.segment_.map_file(fd, kPageBytes) != 0 || !locked || other.any_slot_held()) continue;
    // Somebody else may have removed the file since it was opened, and a job of the same name
    // have begun: no slot is held on the old inode, and the name is the new one's.
    other.unlink_file();
  }
}

void GlobalSegment::remove_process_files() const {
  DIR* dir = ::opendir(kDirectory);
  if (dir == nullptr) return;
  const std::string prefix = path_.substr(std::strlen(kDirectory)) + ".";
  while (const dirent* entry = ::readdir(dir)) {
    if (std::strncmp(entry->d_name, prefix.c_str(), prefix.size()) == 0) {
      ::unlink((std::string(kDirectory) + entry->d_name).c_str());
    }
  }
  ::closedir(dir);
}

}  // namespace softhca
