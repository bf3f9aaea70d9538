// A few transports in one process, on a fabric of their own: ranks that talk to each other, each
// with an inbox.
//
// Thread contract: one test thread drives progress of all ranks, or each rank has a thread of its
// own (Rank is not shared).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ops/request.h"
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
  std::int64_t stat(const char* name) const;  // of stats_json()
  // A message of `bytes` bytes that pattern(seed) describes.
  void send(std::uint32_t other, std::size_t bytes, std::uint64_t seed, std::uint8_t tag = 0x42);
};

std::vector<std::byte> pattern(std::size_t bytes, std::uint64_t seed);

bool contains(const std::string& text, const char* part);

// Short timers, so that a peer's silence is noticed in milliseconds.
conn::Params quick();

constexpr unsigned kAllAccess = conn::kLocalWrite | conn::kRemoteRead | conn::kRemoteWrite;

// A put or get of all of `local`; its end is counted in `done`.
ops::RdmaOp transfer(ops::RdmaOp::Dir dir, std::span<std::byte> local, const conn::Region& mine,
                     const std::byte* remote, const conn::Region& theirs, int& done);

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
  // The same while everybody else is elsewhere, or no more.
  bool until_by(std::initializer_list<std::uint32_t> active, const std::function<bool()>& done,
                int limit_ms);
  void close_all();
  const std::string& error() const { return error_; }

 private:
  static bool drive(const std::vector<Rank*>& active, const std::function<bool()>& done,
                    int limit_ms);

  std::vector<std::unique_ptr<Rank>> ranks_;
  std::string error_;
};

// One put of a page from rank 0 to rank 1. Its regions outlive the ends of both: close_all() first.
class PagePut {
 public:
  explicit PagePut(Fabric& fabric);
  ~PagePut();
  PagePut(const PagePut&) = delete;
  PagePut& operator=(const PagePut&) = delete;

  void submit();  // once
  bool done() const { return done_ == 1; }
  bool arrived() const { return target_ == source_; }

 private:
  Fabric& fabric_;
  std::vector<std::byte> source_;
  std::vector<std::byte> target_;
  conn::Region mine_;
  conn::Region theirs_;
  ops::RdmaOp put_;
  int done_ = 0;
};

}  // namespace mend::test
