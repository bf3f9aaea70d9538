// The small tables of the hot path: wr_id, QP numbers, atomics in flight.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "ops/amo_table.h"
#include "ops/lane_table.h"
#include "ops/wr_id.h"

namespace mend::ops {
namespace {

TEST(WrId, RoundTripsEveryKindAtTheEdges) {
  for (const WrKind kind : {WrKind::Log, WrKind::Ack, WrKind::Flag}) {
    for (const std::uint32_t epoch : {0u, 1u, kWrEpochMask}) {
      for (const std::uint32_t position : {0u, 1u, 0x7fffffffu, 0xffffffffu}) {
        const std::uint64_t id = make_wr_id(kind, Epoch{epoch}, position);
        EXPECT_EQ(wr_kind(id), kind);
        EXPECT_EQ(wr_upper(id), epoch);
        EXPECT_EQ(wr_lower(id), position);
        EXPECT_TRUE(wr_of_epoch(id, Epoch{epoch}));
        EXPECT_FALSE(wr_of_epoch(id, Epoch{epoch + 1}));
      }
    }
  }
}

TEST(WrId, UserAddressesAreReceives) {
  alignas(64) int object = 0;
  EXPECT_EQ(wr_kind(reinterpret_cast<std::uint64_t>(&object)), WrKind::Recv);
  EXPECT_EQ(wr_kind(0x00ffffffffffffffull), WrKind::Recv);  // five-level page tables
}

TEST(WrId, EpochsBeyondTheFieldStillCompare) {
  const Epoch big{kWrEpochMask + 5};
  EXPECT_TRUE(wr_of_epoch(make_wr_id(WrKind::Log, big, 3), big));
  EXPECT_FALSE(wr_of_epoch(make_wr_id(WrKind::Log, big, 3), Epoch{big.value + 1}));
  EXPECT_EQ(wr_kind(make_wr_id(WrKind::Log, big, 3)), WrKind::Log);
}

LaneEntry lane(std::uint32_t qpn, std::uint32_t epoch) {
  LaneEntry entry;
  entry.qpn = Qpn{qpn};
  entry.epoch = Epoch{epoch};
  entry.channel = reinterpret_cast<Channel*>(std::uintptr_t{64});
  return entry;
}

TEST(LaneTable, BehavesLikeAMapUnderRandomUse) {
  LaneTable table;
  std::map<std::uint32_t, std::uint32_t> model;
  std::mt19937 random(7);  // NOLINT: the seed is the point
  for (std::uint32_t step = 0; step < 20000; ++step) {
    const auto qpn = static_cast<std::uint32_t>(random() % 300);
    if (random() % 2 == 0) {
      table.add(lane(qpn, step));
      model[qpn] = step;
    } else {
      EXPECT_EQ(table.remove(Qpn{qpn}), model.erase(qpn) == 1);
    }
    if (step % 100 == 0) {
      for (std::uint32_t probe = 0; probe < 300; ++probe) {
        const LaneEntry* found = table.find(Qpn{probe});
        const auto expected = model.find(probe);
        ASSERT_EQ(found != nullptr, expected != model.end()) << probe;
        if (found != nullptr) {
          ASSERT_EQ(found->epoch.value, expected->second);
        }
      }
    }
    ASSERT_EQ(table.size(), model.size());
  }
}

TEST(LaneTable, RecycledQpNumberReplacesItsEntry) {
  LaneTable table;
  table.add(lane(5, 1));
  table.add(lane(5, 2));
  EXPECT_EQ(table.size(), 1u);
  EXPECT_EQ(table.find(Qpn{5})->epoch.value, 2u);
}

TEST(AmoTable, LateAndForgedIdsFindNothing) {
  AmoTable table;
  AmoCall first;
  AmoCall second;
  const std::uint32_t id = table.add(first);
  EXPECT_EQ(table.find(id), &first);
  EXPECT_EQ(table.find(id + 1), nullptr);
  EXPECT_EQ(table.take(id), &first);
  EXPECT_EQ(table.take(id), nullptr);
  const std::uint32_t again = table.add(second);  // same slot, next generation
  EXPECT_NE(again, id);
  EXPECT_EQ(table.find(id), nullptr);
  EXPECT_EQ(table.take(again), &second);
  EXPECT_EQ(table.live(), 0u);
  EXPECT_EQ(table.find(0xffffffffu), nullptr);
}

}  // namespace
}  // namespace mend::ops
