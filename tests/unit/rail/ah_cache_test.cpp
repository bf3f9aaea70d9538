// Address handles by generation: stale ones are neither found nor destroyed under a datagram in
// flight.
#include "plugin/conn/ah_cache.h"

#include <gtest/gtest.h>

namespace mend::conn {
namespace {

int destroyed = 0;

verbs::Ah make_ah() {
  return verbs::Ah(new ibv_ah{}, [](ibv_ah* ah) {
    ++destroyed;
    delete ah;
    return 0;
  });
}

class AhCacheTest : public testing::Test {
 protected:
  void SetUp() override { destroyed = 0; }
  AhCache cache;
  const AhCache::Key a{verbs::Gid{1}, 0}, b{verbs::Gid{}, 7};
};

TEST_F(AhCacheTest, FindsByGidAndLid) {
  verbs::Ah first = make_ah();
  ibv_ah* raw = first.get();
  cache.insert(a, cache.generation(), std::move(first));
  cache.insert(b, cache.generation(), make_ah());
  EXPECT_EQ(cache.find(a), raw);
  EXPECT_NE(cache.find(b), raw);
  EXPECT_EQ(cache.find({verbs::Gid{2}, 0}), nullptr);
  EXPECT_EQ(cache.size(), 2u);
}

TEST_F(AhCacheTest, NewGenerationForgetsButKeepsAlive) {
  cache.insert(a, cache.generation(), make_ah());
  cache.next_generation();
  EXPECT_EQ(cache.find(a), nullptr);
  EXPECT_EQ(destroyed, 0) << "a datagram may still name it";
  cache.destroy_retired();
  EXPECT_EQ(destroyed, 1);
  EXPECT_FALSE(cache.has_retired());
}

TEST_F(AhCacheTest, HandleResolvedInAnOldGenerationIsNotUsed) {
  const std::uint32_t old = cache.generation();
  cache.next_generation();
  cache.insert(a, old, make_ah());
  EXPECT_EQ(cache.find(a), nullptr);
  EXPECT_TRUE(cache.has_retired());
}

TEST_F(AhCacheTest, ReplacedHandleIsRetired) {
  cache.insert(a, cache.generation(), make_ah());
  cache.insert(a, cache.generation(), make_ah());
  EXPECT_EQ(cache.size(), 1u);
  EXPECT_TRUE(cache.has_retired());
  cache.forget(a);
  cache.forget(a);
  EXPECT_EQ(cache.find(a), nullptr);
  cache.destroy_retired();
  EXPECT_EQ(destroyed, 2);
}

}  // namespace
}  // namespace mend::conn
