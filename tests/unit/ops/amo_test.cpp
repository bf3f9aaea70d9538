#include <gtest/gtest.h>

#include <cstring>

#include "ops/amo_execute.h"
#include "tests/unit/ops/harness.h"

namespace mend::test {
namespace {

using ops::AmoCall;
using ops::AmoOp;

struct Row {
  AmoOp op;
  std::uint64_t before, operand, compare, after64;
  std::uint32_t after32;
};

constexpr Row kRows[] = {
    {AmoOp::Add, 0xffffffffull, 2, 0, 0x100000001ull, 1},
    {AmoOp::And, 0xff00ff00ull, 0x0ff00ff0ull, 0, 0x0f000f00ull, 0x0f000f00u},
    {AmoOp::Or, 0xf0ull, 0x0full, 0, 0xffull, 0xffu},
    {AmoOp::Xor, 0xffull, 0x0full, 0, 0xf0ull, 0xf0u},
    {AmoOp::Swap, 7, 9, 0, 9, 9},
    {AmoOp::Cswap, 7, 9, 7, 9, 9},
    {AmoOp::Cswap, 7, 9, 8, 7, 7},
    {AmoOp::Min, 5, static_cast<std::uint64_t>(-3), 0, static_cast<std::uint64_t>(-3), 0xfffffffdu},
    {AmoOp::Max, 5, static_cast<std::uint64_t>(-3), 0, 5, 5},
};

TEST(AmoExecute, EveryOperationInBothWidths) {
  for (const Row& row : kRows) {
    std::uint64_t wide = row.before;
    EXPECT_EQ(ops::execute_amo(row.op, 8, &wide, row.operand, row.compare), row.before);
    EXPECT_EQ(wide, row.after64) << static_cast<int>(row.op);
    std::uint32_t narrow[2] = {static_cast<std::uint32_t>(row.before), 0xabcdabcd};
    EXPECT_EQ(ops::execute_amo(row.op, 4, narrow, row.operand, row.compare),
              static_cast<std::uint32_t>(row.before));
    EXPECT_EQ(narrow[0], row.after32) << static_cast<int>(row.op);
    EXPECT_EQ(narrow[1], 0xabcdabcd) << "wrote beyond its width";
  }
}

TEST(AmoExecute, Validity) {
  EXPECT_TRUE(ops::amo_is_valid(7, 8, 64));
  EXPECT_FALSE(ops::amo_is_valid(8, 8, 64));
  EXPECT_FALSE(ops::amo_is_valid(0, 2, 64));
  EXPECT_FALSE(ops::amo_is_valid(0, 8, 68));
  EXPECT_TRUE(ops::amo_is_valid(0, 4, 68));
  EXPECT_FALSE(ops::amo_is_valid(0, 4, 0));
}

AmoCall call_of(AmoOp op, std::uint64_t* remote, std::uint64_t operand, int* done) {
  AmoCall call;
  call.op = op;
  call.remote = reinterpret_cast<std::uint64_t>(remote);
  call.operand = operand;
  call.user[0] = done;
  call.done = [](AmoCall& finished) { ++*static_cast<int*>(finished.user[0]); };
  return call;
}

TEST(Amo, FetchesTheValueBeforeInSequenceOrder) {
  Pair pair;
  pair.open();
  std::uint64_t memory = 100;
  int done = 0;
  std::vector<AmoCall> calls(40, call_of(AmoOp::Add, &memory, 1, &done));
  for (AmoCall& call : calls) {
    pair.a.channel->atomic(call);
  }
  EXPECT_EQ(done, 0);
  pair.pump();
  EXPECT_EQ(done, 40);
  EXPECT_EQ(memory, 140u);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(calls[i].result, 100 + i);
  }
  EXPECT_EQ(pair.a.channel->stats().atomics, 40u);
  EXPECT_TRUE(pair.a.channel->quiet());
}

TEST(Amo, BadRequestsAreRefusedAndReportedOnBothSides) {
  Pair pair;
  pair.open();
  std::uint64_t memory[2] = {1, 2};
  int done = 0;
  AmoCall misaligned = call_of(AmoOp::Add, memory, 1, &done);
  misaligned.remote += 4;
  pair.a.channel->atomic(misaligned);
  pair.pump();
  ASSERT_EQ(pair.b.faults.size(), 1u);
  EXPECT_EQ(pair.b.faults[0], std::pair(ops::Fault::BadAtomic, misaligned.remote));
  ASSERT_EQ(pair.a.faults.size(), 1u);
  EXPECT_EQ(pair.a.faults[0], std::pair(ops::Fault::AtomicRefused, misaligned.remote));

  pair.b.allow_access = false;  // outside of every registered region
  AmoCall foreign = call_of(AmoOp::Swap, memory, 9, &done);
  pair.a.channel->atomic(foreign);
  pair.pump();
  EXPECT_EQ(pair.b.faults.size(), 2u);
  EXPECT_EQ(memory[0], 1u);
  EXPECT_EQ(done, 0);
}

TEST(Amo, ForgedRepliesAndShortRequestsDoNothing) {
  Pair pair;
  pair.open();
  ops::DataHeader header{};
  header.epoch_lo = 1;
  header.kind = static_cast<std::uint8_t>(ops::Kind::AmoRsp);
  header.aux = 12345;
  const ops::AmoResponse body{};
  const auto* bytes = reinterpret_cast<const std::byte*>(&body);
  EXPECT_EQ(pair.a.channel->on_receive(header, sizeof(body), bytes, pair.epoch),
            ops::RxVerdict::Consumed);
  header.seq = 1;
  header.kind = static_cast<std::uint8_t>(ops::Kind::AmoReq);
  EXPECT_EQ(pair.a.channel->on_receive(header, 3, bytes, pair.epoch), ops::RxVerdict::Consumed);
  pair.a.channel->run_events();
  ASSERT_EQ(pair.a.faults.size(), 2u);
  EXPECT_EQ(pair.a.faults[0].first, ops::Fault::UnknownReply);
  EXPECT_EQ(pair.a.faults[1].first, ops::Fault::BadAtomic);
}

// Neither side may lose an atomic because there was no memory for its message.
TEST(Amo, WaitsForMemoryOnBothSides) {
  Pair pair;
  pair.open();
  std::uint64_t memory = 0;
  int done = 0;
  std::vector<AmoCall> calls(5, call_of(AmoOp::Add, &memory, 1, &done));
  pair.a.refuse_memory = true;
  pair.b.refuse_memory = true;
  for (AmoCall& call : calls) {
    pair.a.channel->atomic(call);
  }
  EXPECT_FALSE(pair.a.channel->quiet());
  pair.pump();
  EXPECT_EQ(memory, 0u);
  pair.a.refuse_memory = false;
  pair.pump(3000);
  EXPECT_EQ(memory, 5u);
  EXPECT_EQ(done, 0);
  pair.b.refuse_memory = false;
  pair.pump(3000);
  EXPECT_EQ(done, 5);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(calls[i].result, i);
  }
}

}  // namespace
}  // namespace mend::test
