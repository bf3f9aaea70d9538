// A few transports in one process, on a fabric of their own: ranks that talk to each other, each
// with an inbox.
//
// Thread contract: one test thread drives progress of all ranks, or each rank has a thread of its
// own (Rank is not shared).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "plugin/conn/host.h"
#include "plugin/conn/transport.h"

namespace mend::test {

struct Inbox {
  std::uint32_t from = 0;
  std::uint8_t tag = 0;
  std::vector<std::byte> bytes;
};

struct Rank {
  std::uint32_t rank = 0;
  std::unique_ptr<conn::Transport> transport;
  std::map<std::uint32_t, conn::Peer*> peers;
  std::map<conn::Peer*, std::uint32_t> names;
  std::vector<Inbox> inbox;
  std::vector<std::string> gave_up;
  std::vector<std::string> warnings;
  std::vector<std::uint32_t> unknown;

  ops::Channel& to(std::uint32_t other) { return transport->channel(peers.at(other), RailId{0}); }
  int progress();
  // A message of `bytes` bytes that pattern(seed) describes.
  void send(std::uint32_t other, std::size_t bytes, std::uint64_t seed, std::uint8_t tag = 0x42);
};

std::vector<std::byte> pattern(std::size_t bytes, std::uint64_t seed);

class Fabric {
 public:
  // Creates the ranks and introduces everybody to everybody (unless introduce is false).
  // host: the executors to run on, if not the machine's.
  explicit Fabric(std::uint32_t ranks, conn::Params params = {}, bool introduce = true,
                  conn::Host* host = nullptr);
  ~Fabric();
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

  Rank& operator[](std::uint32_t rank) { return *ranks_[rank]; }
  void introduce(std::uint32_t a, std::uint32_t b);  // a learns of b
  // Drives everybody's progress until done() or the limit; whether done() came true.
  bool until(const std::function<bool()>& done, int limit_ms = 10000);
  void close_all();
  const std::string& error() const { return error_; }

 private:
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::string error_;
};

}  // namespace mend::test
