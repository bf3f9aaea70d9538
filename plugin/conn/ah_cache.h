// AhCache: address handles of one protection domain, by destination and generation. A generation
// ends when the port's GID or LID may have changed; handles of ended generations die when no
// datagram that names them is in flight.
//
// Thread contract: not thread-safe, its owner (UdChannel) locks; create() is called without that
// lock, since it can block for seconds.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "plugin/conn/rail.h"
#include "plugin/verbs/unique.h"

namespace mend::conn {

class AhCache {
 public:
  struct Key {
    verbs::Gid gid{};
    std::uint16_t lid = 0;
    friend auto operator<=>(const Key&, const Key&) = default;
  };

  ibv_ah* find(const Key& key) const;
  std::uint32_t generation() const { return generation_; }
  // A handle resolved in an older generation is retired at once instead of being used.
  void insert(const Key& key, std::uint32_t generation, verbs::Ah ah);
  void forget(const Key& key);
  void next_generation();
  void destroy_retired() { retired_.clear(); }  // nothing in flight
  bool has_retired() const { return !retired_.empty(); }
  std::size_t size() const { return handles_.size(); }

 private:
  std::map<Key, verbs::Ah> handles_;
  std::vector<verbs::Ah> retired_;
  std::uint32_t generation_ = 1;
};

}  // namespace mend::conn
