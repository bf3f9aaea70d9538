// The 16-byte header of every SEND and the bodies of atomics: a channel fed with arbitrary messages
// keeps its sequence (docs/protocol.md I1), never believes an acknowledgement of what it did not
// send, and touches no memory it may not touch. Input: records of a mode byte and 48 bytes (header
// and body); the mode puts some fields right so that the search gets deep.
#include <cstring>
#include <span>

#include "tests/fuzz/check.h"
#include "tests/unit/ops/harness.h"

using namespace mend;
using mend::fuzz::check;

namespace {

enum Mode : unsigned {
  kRightSeq = 1,
  kRightEpoch = 2,
  kRightAddress = 4,
  kSendFirst = 8,
  kCutBody = 16
};
constexpr std::size_t kRecord = 1 + sizeof(ops::DataHeader) + sizeof(ops::AmoRequest);

alignas(8) std::uint64_t cells[4];

struct Record {
  unsigned mode = 0;
  ops::DataHeader header{};
  alignas(8) std::byte body[sizeof(ops::AmoRequest)];
  std::uint32_t length = sizeof body;
};

Record read_record(const std::uint8_t* data, const test::Side& side, Epoch epoch) {
  Record r;
  r.mode = data[0];
  std::memcpy(&r.header, data + 1, sizeof r.header);
  std::memcpy(r.body, data + 1 + sizeof r.header, sizeof r.body);
  const std::uint64_t expected = ops::ChannelTestAccess::rx_next(*side.channel);
  if ((r.mode & kRightSeq) != 0) r.header.seq = static_cast<std::uint32_t>(expected);
  if ((r.mode & kRightEpoch) != 0) r.header.epoch_lo = static_cast<std::uint16_t>(epoch.value);
  if ((r.mode & kCutBody) != 0) r.length = r.mode >> 5;
  if ((r.mode & kRightAddress) != 0) {
    const std::uint64_t address = reinterpret_cast<std::uint64_t>(&cells[r.header.aux % 4]);
    std::memcpy(r.body, &address, sizeof address);
  }
  return r;
}

void receive(test::Pair& pair, const Record& r) {
  test::Side& side = pair.a;
  side.allow_access = (r.mode & kRightAddress) != 0;
  const std::uint64_t before = ops::ChannelTestAccess::rx_next(*side.channel);
  const ops::RxVerdict verdict = side.channel->on_receive(r.header, r.length, r.body, pair.epoch);
  const std::uint64_t after = ops::ChannelTestAccess::rx_next(*side.channel);
  const bool taken = verdict == ops::RxVerdict::Deliver || verdict == ops::RxVerdict::Consumed;
  check(after == before + (taken ? 1 : 0), "rx_next counts what was taken");
  check(!taken || r.header.seq == static_cast<std::uint32_t>(before), "only the expected seq");
  const ops::TxRxProgress progress = side.channel->progress_now();
  check(progress.tx_next - progress.tx_acked >= 0, "no ack beyond what was sent");
  side.progress();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  test::Pair pair;
  pair.open();
  for (std::size_t at = 0; at + kRecord <= size; at += kRecord) {
    const Record r = read_record(data + at, pair.a, pair.epoch);
    if ((r.mode & kSendFirst) != 0) pair.a.send("x");
    receive(pair, r);
  }
  return 0;
}
