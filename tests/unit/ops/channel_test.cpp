// One channel in calm weather: order, window, acknowledgements, signalling, inline, holds, events.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tests/unit/ops/harness.h"

namespace mend::test {
namespace {

using ops::ChannelTestAccess;
using ops::Frag;
using ops::RdmaOp;

std::vector<Message> numbered(int count) {
  std::vector<Message> out;
  for (int i = 0; i < count; ++i) {
    out.push_back(Message{7, "message " + std::to_string(i)});
  }
  return out;
}

TEST(Channel, WantsAConnectionOnceAndPostsInOrderWhenItIsUp) {
  Pair pair;
  for (const Message& message : numbered(3)) {
    pair.a.send(message.text);
  }
  EXPECT_EQ(pair.a.wanted, 1);
  EXPECT_FALSE(pair.a.channel->quiet());
  EXPECT_EQ(pair.a.channel->held_bytes(), 3 * std::strlen("message 0"));
  pair.connect();
  EXPECT_EQ(pair.a.qp().posted, 0u) << "posted before start() (rule F5)";
  pair.start();
  pair.pump();
  EXPECT_EQ(pair.b.received, numbered(3));
  EXPECT_EQ(pair.b.first_receives, 1);
  EXPECT_EQ(pair.a.log_empties, 1);
  EXPECT_EQ(pair.b.log_empties, 1);
  EXPECT_TRUE(pair.a.channel->quiet());
  EXPECT_TRUE(pair.b.channel->quiet());
  EXPECT_EQ(pair.a.channel->held_bytes(), 0u);
  EXPECT_EQ(pair.a.frags->counters().live, 0u);
  EXPECT_EQ(pair.a.channel->stats().sends, 3u);
  EXPECT_EQ(pair.b.channel->stats().recvs, 3u);
  EXPECT_EQ(pair.a.channel->stats().replayed, 0u);
}

TEST(Channel, WindowIsAbsoluteAndTheAckCellOpensIt) {
  Pair pair({.window = 8, .send_depth = 64});
  pair.open();
  for (const Message& message : numbered(20)) {
    pair.a.send(message.text);
  }
  EXPECT_EQ(pair.a.qp().posted, 8u);
  EXPECT_EQ(pair.a.channel->stats().window_full, 1u);
  // The receiver takes them without sending anything: it acknowledges every W/4 by the ack cell.
  while (pair.b.progress() != 0) {
  }
  EXPECT_EQ(pair.b.received.size(), 8u);
  EXPECT_EQ(pair.b.channel->stats().acks_written, 4u);
  EXPECT_EQ(pair.a.cell.from_peer, 8u);
  pair.a.progress();  // idle, but the log waits for the window: looks at the cell at once
  EXPECT_EQ(pair.a.qp().posted, 16u);
  pair.pump();
  EXPECT_EQ(pair.b.received, numbered(20));
}

TEST(Channel, OwedAckIsWrittenWhenIdleOrForced) {
  Pair pair;
  pair.open();
  pair.a.send("one");
  pair.b.progress();
  EXPECT_TRUE(pair.b.channel->ack_owed());
  EXPECT_EQ(pair.b.channel->stats().acks_written, 0u);
  pair.b.channel->write_ack_if_owed(false);
  EXPECT_EQ(pair.b.channel->stats().acks_written, 0u) << "one of sixteen is no reason to write";
  pair.b.channel->write_ack_if_owed(true);
  EXPECT_EQ(pair.b.channel->stats().acks_written, 1u);
  EXPECT_EQ(pair.a.cell.from_peer, 1u);
  pair.a.channel->check_ack_cell();
  EXPECT_TRUE(pair.a.channel->quiet());
  pair.a.send("two");
  for (int i = 0; i < 200; ++i) {
    pair.b.progress();
  }
  EXPECT_EQ(pair.b.channel->stats().acks_written, 2u);
}

TEST(Channel, RepliesCarryTheAck) {
  Pair pair;
  pair.open();
  for (int i = 0; i < 100; ++i) {
    pair.a.send("ping");
    pair.b.progress();
    pair.b.send("pong");
    pair.a.progress();
    EXPECT_EQ(ChannelTestAccess::acked(*pair.a.channel), static_cast<std::uint64_t>(i) + 1);
  }
  EXPECT_EQ(pair.a.channel->stats().acks_written + pair.b.channel->stats().acks_written, 0u);
  EXPECT_LE(pair.a.frags->counters().live, 1u);
}

TEST(Channel, SequenceNumbersWrapAt32Bits) {
  Pair pair({.window = 8});
  const std::uint64_t start = (1ull << 32) - 5;
  ChannelTestAccess::set_sequence(*pair.a.channel, start);
  ChannelTestAccess::set_sequence(*pair.b.channel, start);
  pair.open();
  for (const Message& message : numbered(20)) {
    pair.a.send(message.text);
    pair.b.send(message.text);
    pair.pump(2);
  }
  pair.recover();
  pair.pump();
  EXPECT_EQ(pair.a.received, numbered(20));
  EXPECT_EQ(pair.b.received, numbered(20));
  EXPECT_EQ(ChannelTestAccess::acked(*pair.a.channel), start + 20);
  EXPECT_TRUE(pair.a.channel->quiet());
}

TEST(Channel, AnAckCellOfLongAgoDoesNotLookNew) {
  Pair pair;
  ChannelTestAccess::set_sequence(*pair.a.channel, (1ull << 32) + 10);
  pair.a.cell.from_peer = 12;  // low 32 bits would pass for two more than acknowledged
  pair.connect();
  static_cast<void>(pair.a.channel->start(Seq{10}));
  for (int i = 0; i < 5; ++i) {
    pair.a.send("x");
  }
  pair.a.channel->check_ack_cell();
  EXPECT_EQ(ChannelTestAccess::acked(*pair.a.channel), (1ull << 32) + 10);
}

TEST(Channel, ImpossibleAcksAreIgnored) {
  Pair pair;
  pair.open();
  pair.a.send("one");
  pair.a.channel->on_peer_ack(Seq{2});            // never sent
  pair.a.channel->on_peer_ack(Seq{0xfffffff0u});  // older than anything
  EXPECT_EQ(ChannelTestAccess::acked(*pair.a.channel), 0u);
  pair.a.channel->on_peer_ack(Seq{1});
  EXPECT_EQ(ChannelTestAccess::acked(*pair.a.channel), 1u);
  pair.a.channel->on_peer_ack(Seq{0});  // late
  EXPECT_EQ(ChannelTestAccess::acked(*pair.a.channel), 1u);
}

// A send queue full of unsignalled requests could never be told to be empty.
TEST(Channel, SendQueueNeverFillsWithUnsignalledRequests) {
  for (const std::uint32_t depth : {1u, 2u, 3u, 5u, 16u}) {
    for (const std::uint32_t every : {1u, 4u, 16u, 1000u}) {
      Pair pair({.window = 256, .send_depth = depth, .signal_every = every});
      pair.open();
      for (const Message& message : numbered(100)) {
        pair.a.send(message.text);
      }
      pair.pump(400);
      EXPECT_EQ(pair.b.received, numbered(100)) << depth << " " << every;
      EXPECT_TRUE(pair.a.lost.empty()) << "the device's queue was overrun";
      EXPECT_LE(pair.a.qp().peak, depth + 1);
    }
  }
}

TEST(Channel, AcksHaveASlotOfTheirOwn) {
  Pair pair({.window = 64, .send_depth = 4, .signal_every = 2});
  pair.open();
  pair.b.qp().automatic = false;  // B's requests stay on its queue
  for (int i = 0; i < 10; ++i) {
    pair.b.send("fill");
  }
  EXPECT_EQ(pair.b.qp().posted, 4u);
  for (const Message& message : numbered(20)) {
    pair.a.send(message.text);
  }
  pair.pump();
  EXPECT_EQ(pair.b.qp().posted, 5u) << "the ack went into the reserved slot";
  EXPECT_EQ(pair.b.channel->stats().acks_written, 1u);
  pair.b.qp().automatic = true;
  pair.fabric.execute_all(pair.b.qp());
  pair.pump();
  EXPECT_EQ(pair.a.received.size(), 10u);
  EXPECT_TRUE(pair.a.channel->quiet());
}

TEST(Channel, InlineLimitCountsTheHeader) {
  Pair pair({.max_inline = 64});
  pair.open();
  pair.a.qp().automatic = false;
  for (const std::size_t size : {std::size_t{47}, std::size_t{48}, std::size_t{49}}) {
    pair.a.send(std::string(size, 'x'));
  }
  ASSERT_EQ(pair.a.qp().waiting.size(), 3u);
  EXPECT_TRUE(pair.a.qp().waiting[0].wr.send_flags & IBV_SEND_INLINE);
  EXPECT_TRUE(pair.a.qp().waiting[1].wr.send_flags & IBV_SEND_INLINE);
  EXPECT_FALSE(pair.a.qp().waiting[2].wr.send_flags & IBV_SEND_INLINE);
  EXPECT_EQ(pair.a.qp().waiting[2].sge.lkey, 42u);
}

TEST(Channel, WorksWithoutInlineAndAcksFromRegisteredMemory) {
  Pair pair({.window = 4, .max_inline = 0});
  pair.open();
  for (const Message& message : numbered(40)) {
    pair.a.send(message.text);
  }
  pair.a.send("");
  pair.pump();
  EXPECT_EQ(pair.b.received.size(), 41u);
  EXPECT_EQ(pair.b.received.back().text, "");
  EXPECT_GT(pair.b.channel->stats().acks_written, 0u);
  EXPECT_TRUE(pair.a.channel->quiet());
}

// I5: wire, peer and user must all let go before a Frag is used again.
TEST(Channel, FragIsFreeOnlyWhenWirePeerAndUserLetGo) {
  Pair pair({.signal_every = 1, .max_inline = 0});
  pair.open();
  pair.a.qp().automatic = false;
  Frag* frag = pair.a.frags->get();
  frag->length = 3;
  std::memcpy(frag->payload(), "abc", 3);
  pair.a.channel->send(*frag, 1, true);
  EXPECT_EQ(frag->held.load(), ops::kHoldPeer | ops::kHoldUser | ops::kHoldWire);
  pair.a.qp().hold_completions = true;
  pair.fabric.execute_all(pair.a.qp());
  pair.b.progress();
  pair.b.channel->write_ack_if_owed(true);
  pair.a.channel->check_ack_cell();  // the ack overtakes the completion
  EXPECT_EQ(frag->held.load(), ops::kHoldUser | ops::kHoldWire);
  ops::release_hold(*frag, ops::kHoldUser);
  EXPECT_EQ(pair.a.frags->counters().live, 1u);
  pair.fabric.complete_held(pair.a.qp(), 1);
  pair.a.progress();
  EXPECT_EQ(pair.a.frags->counters().live, 0u);
}

TEST(Channel, SendCallbackComesLaterFromProgressAndOnce) {
  static int calls;
  calls = 0;
  Pair pair;
  Frag* frag = pair.a.frags->get();
  frag->length = 0;
  frag->sent = [](Frag& sent) {
    ++calls;
    ops::release_hold(sent, ops::kHoldUser);
  };
  pair.a.channel->send(*frag, 1, true);
  pair.a.progress();
  EXPECT_EQ(calls, 0) << "nothing was posted yet";
  pair.open();
  EXPECT_EQ(calls, 0) << "called from a submit function";
  EXPECT_TRUE(pair.a.poller->callbacks_due());
  pair.a.progress();
  EXPECT_EQ(calls, 1);
  pair.recover();
  pair.pump();
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(pair.a.frags->counters().live, 0u);
}

struct Transfer {
  RdmaOp op;
  int done = 0;
  Transfer(RdmaOp::Dir dir, Side& side, void* local, void* remote, std::uint64_t length) {
    op.dir = dir;
    op.local = local;
    op.local_keys = &side.keys;
    op.remote = reinterpret_cast<std::uint64_t>(remote);
    op.length = length;
    op.user[0] = this;
    op.done = [](RdmaOp& finished) { ++static_cast<Transfer*>(finished.user[0])->done; };
  }
};

TEST(Channel, PutAndGetMoveBytesInPiecesAndCompleteOnce) {
  Pair pair({.send_depth = 4, .max_message = 100});
  pair.open();
  std::vector<char> source(1234);
  for (std::size_t i = 0; i < source.size(); ++i) {
    source[i] = static_cast<char>(i * 7);
  }
  std::vector<char> target(source.size());
  std::vector<char> back(source.size());
  Transfer put(RdmaOp::Dir::Put, pair.a, source.data(), target.data(), source.size());
  Transfer get(RdmaOp::Dir::Get, pair.a, back.data(), target.data(), target.size());
  Transfer empty(RdmaOp::Dir::Put, pair.a, nullptr, nullptr, 0);
  pair.a.channel->rdma(put.op);
  pair.a.channel->rdma(get.op);
  pair.a.channel->rdma(empty.op);
  EXPECT_EQ(put.done, 0);
  pair.pump();
  EXPECT_EQ(put.done, 1);
  EXPECT_EQ(get.done, 1);
  EXPECT_EQ(empty.done, 1);
  EXPECT_EQ(target, source);
  EXPECT_EQ(back, source);
  EXPECT_EQ(pair.a.qp().posted, 13u + 13u + 1u);
  EXPECT_TRUE(pair.a.channel->quiet());
}

TEST(Channel, PutCallbackWaitsForItsCompletion) {
  Pair pair;
  pair.open();
  pair.a.qp().hold_completions = true;
  char from[4] = "abc";
  char to[4] = {};
  Transfer put(RdmaOp::Dir::Put, pair.a, from, to, sizeof(from));
  pair.a.channel->rdma(put.op);
  pair.pump(5);
  EXPECT_EQ(put.done, 0) << "executed is not completed";
  pair.fabric.complete_held(pair.a.qp(), 1);
  pair.a.progress();
  EXPECT_EQ(put.done, 1);
}

TEST(Channel, FaultsAreReportedNotUndefined) {
  Pair pair({.max_inline = 32, .payload_bytes = 256});
  pair.open();
  Frag* frag = pair.a.frags->get();
  frag->length = 257;
  pair.a.channel->send_owned(*frag, 1);
  ASSERT_EQ(pair.a.faults.size(), 1u);
  EXPECT_EQ(pair.a.faults[0], std::pair(ops::Fault::MessageTooLong, std::uint64_t{257}));
  EXPECT_EQ(pair.a.frags->counters().live, 0u);
  char bytes[64] = {};
  Transfer put(RdmaOp::Dir::Put, pair.a, bytes, bytes, 64);
  put.op.local_keys = nullptr;
  pair.a.channel->rdma(put.op);
  ASSERT_EQ(pair.a.faults.size(), 2u);
  EXPECT_EQ(pair.a.faults[1].first, ops::Fault::NoInlineNoKeys);
  EXPECT_TRUE(pair.a.channel->quiet());
}

// Hand-made receives: what a peer (or a ghost) could send.
struct Wire {
  ops::DataHeader header{};
  std::byte body[64] = {};
};

TEST(Channel, GhostsDuplicatesGapsAndUnknownKinds) {
  Pair pair;
  pair.open();
  pair.b.send("real");
  pair.a.progress();
  Wire wire;
  wire.header.epoch_lo = 1;
  wire.header.seq = 0;
  EXPECT_EQ(pair.a.channel->on_receive(wire.header, 4, wire.body, pair.epoch),
            ops::RxVerdict::Duplicate);
  wire.header.seq = 1;
  wire.header.epoch_lo = 0;
  EXPECT_EQ(pair.a.channel->on_receive(wire.header, 4, wire.body, pair.epoch),
            ops::RxVerdict::OtherEpoch);
  wire.header.epoch_lo = 1;
  EXPECT_EQ(pair.a.channel->on_receive(wire.header, 4, wire.body, Epoch{0}),
            ops::RxVerdict::OtherEpoch);
  wire.header.kind = 9;
  EXPECT_EQ(pair.a.channel->on_receive(wire.header, 4, wire.body, pair.epoch),
            ops::RxVerdict::Consumed);
  wire.header.kind = static_cast<std::uint8_t>(ops::Kind::Nop);
  wire.header.seq = 2;
  EXPECT_EQ(pair.a.channel->on_receive(wire.header, 0, wire.body, pair.epoch),
            ops::RxVerdict::Consumed);
  wire.header.seq = 4;
  EXPECT_EQ(pair.a.channel->on_receive(wire.header, 0, wire.body, pair.epoch), ops::RxVerdict::Gap);
  pair.a.channel->run_events();
  ASSERT_EQ(pair.a.faults.size(), 1u);
  EXPECT_EQ(pair.a.faults[0], std::pair(ops::Fault::UnknownKind, std::uint64_t{9}));
  ASSERT_EQ(pair.a.lost.size(), 1u);
  EXPECT_EQ(pair.a.lost[0].status, ops::kStatusGap);
  const ops::ChannelStats stats = pair.a.channel->stats();
  EXPECT_EQ(stats.dup_rx, 1u);
  EXPECT_EQ(stats.other_epoch, 2u);
  EXPECT_EQ(ChannelTestAccess::rx_next(*pair.a.channel), 3u);
}

// The first message takes the careful path, those after it the short one; with max_inline 0 there
// is no short one.
TEST(Channel, RefusedPostLosesTheLaneOnceAndKeepsTheLog) {
  for (const std::uint32_t max_inline : {0u, 128u}) {
    for (const int sent_before : {0, 1, 2}) {
      SCOPED_TRACE(std::to_string(max_inline) + " " + std::to_string(sent_before));
      Pair pair({.max_inline = max_inline});
      pair.open();
      const std::vector<Message> messages = numbered(6);
      for (int i = 0; i < 6; ++i) {
        pair.a.qp().refuse_post = i < sent_before ? 0 : 5;  // EIO
        pair.a.send(messages[static_cast<std::size_t>(i)].text);
      }
      ASSERT_EQ(pair.a.lost.size(), 1u);
      EXPECT_EQ(pair.a.lost[0].status, ops::kStatusPostFailed);
      EXPECT_EQ(pair.a.lost[0].vendor_err, 5u);
      EXPECT_EQ(pair.a.qp().posted, static_cast<unsigned>(sent_before));
      pair.recover();
      pair.pump();
      EXPECT_EQ(pair.b.received, messages);
      EXPECT_EQ(pair.a.channel->stats().replayed, 0u) << "never posted is not replayed";
      EXPECT_TRUE(pair.a.channel->quiet());
      pair.fence(pair.a);
      EXPECT_EQ(pair.a.frags->counters().live, 0u) << "a refused post left its wire hold";
    }
  }
}

// Everything that takes a send queue slot or a place in the log between two short SENDs is seen by
// the second one.
TEST(Channel, ShortPathKeepsOrderAmongOtherOperations) {
  Pair pair({.window = 64, .send_depth = 8, .signal_every = 4});
  pair.open();
  pair.a.qp().automatic = false;
  std::uint64_t source = 7;
  std::uint64_t target = 0;
  Transfer put(RdmaOp::Dir::Put, pair.a, &source, &target, 8);
  pair.a.send("0");
  pair.a.send("1");
  pair.b.send("to be acknowledged");
  pair.a.progress();
  pair.a.channel->write_ack_if_owed(true);
  pair.a.send("2");
  pair.a.channel->rdma(put.op);
  pair.a.send("3");
  pair.a.send(std::string(500, 'x'));
  for (int i = 5; i < 12; ++i) {
    pair.a.send(std::to_string(i));
  }
  EXPECT_EQ(pair.a.qp().posted, 8u) << "the send queue is full";
  std::string order;
  for (const FakeWr& wr : pair.a.qp().waiting) {
    order += wr.wr.opcode == IBV_WR_SEND ? 's' : 'w';
  }
  EXPECT_EQ(order, "sswswsss") << "send send ack send put send send send";
  pair.a.qp().automatic = true;
  pair.fabric.execute_all(pair.a.qp());
  pair.pump();
  ASSERT_EQ(pair.b.received.size(), 12u);
  for (std::size_t i = 0; i < 12; ++i) {
    EXPECT_EQ(pair.b.received[i].text, i == 4 ? std::string(500, 'x') : std::to_string(i));
  }
  EXPECT_EQ(put.done, 1);
  EXPECT_EQ(target, 7u);
  EXPECT_TRUE(pair.a.lost.empty());
  EXPECT_TRUE(pair.a.channel->quiet());
}

TEST(Channel, LinkLossNamesTheCauseNotTheFlush) {
  Pair pair;
  pair.open();
  pair.a.qp().automatic = false;
  for (int i = 0; i < 3; ++i) {
    pair.a.send("x");
  }
  pair.fabric.fail(pair.a.qp(), IBV_WC_RETRY_EXC_ERR);
  pair.a.progress();
  ASSERT_EQ(pair.a.lost.size(), 1u);
  EXPECT_EQ(pair.a.lost[0].status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(pair.a.lost[0].epoch, Epoch{1});
  EXPECT_FALSE(pair.a.channel->posting() && pair.a.qp().posted != 3);
  pair.a.send("held back");
  EXPECT_EQ(pair.a.qp().posted, 3u) << "posted on a broken lane";
}

// The peer may ask for a fence before anybody here has looked at the completion.
TEST(Channel, CauseThatAFenceFindsIsReportedAndItsFlushesAreNot) {
  Pair pair;
  pair.open();
  pair.a.qp().automatic = false;
  pair.a.send("x");
  pair.a.send("y");
  pair.fabric.fail(pair.a.qp(), IBV_WC_REM_ACCESS_ERR);
  pair.a.channel->stop_posting();
  pair.a.poller->drain_for_fence();
  ASSERT_EQ(pair.a.lost.size(), 1u);
  EXPECT_EQ(pair.a.lost[0].status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(pair.a.lost[0].epoch, Epoch{1});
  EXPECT_TRUE(pair.a.channel->op_fault().found);
}

// The same of a receive, which is about no operation of ours, whatever was refused before.
TEST(Channel, CauseOfAReceiveThatAFenceFindsIsReported) {
  Pair pair;
  pair.open();
  pair.a.qp().automatic = false;
  pair.a.send("x");
  pair.fabric.fail(pair.a.qp(), IBV_WC_REM_ACCESS_ERR);
  pair.a.progress();
  ASSERT_TRUE(pair.a.channel->op_fault().found);
  pair.recover();
  pair.a.channel->stop_posting();
  ibv_wc refused{};
  refused.status = IBV_WC_WR_FLUSH_ERR;
  pair.a.channel->on_receive_error(refused, Epoch{2});
  EXPECT_FALSE(pair.a.channel->events_pending());
  refused.status = IBV_WC_LOC_PROT_ERR;
  pair.a.channel->on_receive_error(refused, Epoch{2});
  pair.a.channel->run_events();
  ASSERT_EQ(pair.a.lost.size(), 2u);
  EXPECT_EQ(pair.a.lost[1].status, IBV_WC_LOC_PROT_ERR);
  EXPECT_FALSE(pair.a.channel->op_fault().found);
}

// Nobody took it before the next lane began; it said that this one was lost.
TEST(Channel, ALossIsNotToldOfTheNextLane) {
  Pair pair;
  pair.open();
  pair.a.channel->stop_posting();
  ibv_wc refused{};
  refused.status = IBV_WC_LOC_PROT_ERR;
  pair.a.channel->on_receive_error(refused, Epoch{1});
  pair.recover();
  pair.a.channel->run_events();
  EXPECT_TRUE(pair.a.lost.empty());
  pair.a.send("x");
  pair.pump();
  EXPECT_EQ(pair.b.received.size(), 1u);
}

TEST(Channel, FlushAloneIsReportedAsUnknownButOurFenceIsNot) {
  Pair pair;
  pair.open();
  pair.a.qp().automatic = false;
  pair.a.send("x");
  pair.fabric.flush(pair.a.qp());
  pair.a.progress();
  ASSERT_EQ(pair.a.lost.size(), 1u);
  EXPECT_EQ(pair.a.lost[0].status, IBV_WC_WR_FLUSH_ERR);
  pair.b.qp().automatic = false;
  pair.b.send("y");
  pair.recover();
  pair.pump();
  EXPECT_TRUE(pair.b.lost.empty());
  EXPECT_EQ(pair.a.received.size(), 1u);
}

}  // namespace
}  // namespace mend::test
