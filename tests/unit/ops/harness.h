// Two processes' data sides in one test: pools, pollers and channels over the fake device, with the
// connection layer's part (attach, start, fence, exchange of progress) played by hand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "ops/channel.h"
#include "ops/frag_pool.h"
#include "ops/poller.h"
#include "ops/recv_pool.h"
#include "tests/unit/ops/channel_access.h"
#include "tests/unit/ops/fake_verbs.h"

namespace mend::test {

struct Options {
  std::uint32_t window = 16;
  std::uint32_t send_depth = 16;
  std::uint32_t signal_every = 4;
  std::uint32_t max_inline = 128;
  std::uint64_t max_message = 1u << 30;
  std::uint32_t payload_bytes = 1024;
  std::uint32_t recv_depth = 64;
  bool srq = true;
};

struct Message {
  std::uint8_t tag = 0;
  std::string text;
  friend bool operator==(const Message&, const Message&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Message& message) {
    return out << int{message.tag} << ':' << message.text;
  }
};

struct LostEvent {
  Epoch epoch;
  int status = 0;
  std::uint32_t vendor_err = 0;
};

// One process.
class Side {
 public:
  Side(FakeFabric& fabric, const Options& options);
  ~Side();
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  void send(const std::string& text, std::uint8_t tag = 7);
  int progress() { return poller->progress(); }

  FakeFabric& fabric;
  Options options;
  FakeCq cq;
  FakeSrq srq;
  std::vector<std::unique_ptr<FakeQp>> qps;  // one per epoch; old ones are kept, as ghosts would
  std::vector<std::unique_ptr<FakeSrq>> own_rqs;  // receive queues of QPs without SRQ
  ops::LocalKeys keys;
  std::unique_ptr<ops::FragPool> frags;
  std::unique_ptr<ops::RecvPool> recv_pool;
  std::unique_ptr<ops::Poller> poller;
  ops::AckCell cell;
  std::unique_ptr<ops::Channel> channel;

  std::vector<Message> received;
  void (*on_message)(Side&) = nullptr;  // called from the upcall
  int wanted = 0;
  int first_receives = 0;
  int log_empties = 0;
  std::vector<LostEvent> lost;
  std::vector<std::pair<ops::Fault, std::uint64_t>> faults;
  bool allow_access = true;
  int chunks_registered = 0;
  bool refuse_memory = false;

  FakeQp& qp() { return *qps.back(); }
};

// Both processes and the link between them.
class Pair {
 public:
  explicit Pair(const Options& options = {}) : a(fabric, options), b(fabric, options) {}
  ~Pair();
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  void connect();  // next epoch: new QPs, attach; nothing is posted yet
  void start();    // both sides enter Replaying with the other's progress
  void open() {
    connect();
    start();
  }
  void fence(Side& side);  // stop, error, drain, reset, sample
  void recover();          // fence both, connect, start
  void pump(int rounds =
                200);  // progress on both sides until both are idle for long enough to write acks

  FakeFabric fabric;
  Epoch epoch{0};
  Side a;
  Side b;
  ops::TxRxProgress a_progress, b_progress;
  ops::ReplayVerdict a_verdict = ops::ReplayVerdict::Ok, b_verdict = ops::ReplayVerdict::Ok;
};

}  // namespace mend::test
