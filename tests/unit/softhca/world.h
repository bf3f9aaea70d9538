// A simulated fabric for one test: INI text in, contexts out, and waiting that moves the virtual
// clock. Contexts are closed by the world, after the test's own objects are gone.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "softhca/conf/conf.h"
#include "softhca/engine/sim.h"
#include "tests/unit/softhca/verbs_kit.h"

namespace kit {

class World {
 public:
  explicit World(std::string_view conf_text = "[softhca0]\n", bool with_log = true)
      : conf_(*softhca::parse_conf(conf_text, "test")), sim_(conf_, with_log) {}
  ~World() {
    for (ibv_context* ctx : contexts_) EXPECT_EQ(ibv_close_device(ctx), 0);
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // The device of that name (the first without one) in a node of its own.
  ibv_context* open(std::string_view device = {}) {
    unsigned index = 0;
    while (!device.empty() && conf_.devices[index].name != device) ++index;
    ibv_context* ctx = sim_.open(index);
    EXPECT_NE(ctx, nullptr);
    contexts_.push_back(ctx);
    return ctx;
  }
  // Before the others.
  void close(ibv_context* ctx) {
    std::erase(contexts_, ctx);
    EXPECT_EQ(ibv_close_device(ctx), 0);
  }
  // The node of this context dies; the world must not close what it left.
  void kill(ibv_context* ctx) {
    std::erase(contexts_, ctx);
    sim_.kill(ctx);
  }

  Wait wait() {
    return [this](uint64_t ns) { sim_.advance(ns); };
  }
  uint64_t now() const { return sim_.now(); }
  softhca::sim::Fabric& sim() { return sim_; }

 private:
  softhca::FabricConf conf_;
  softhca::sim::Fabric sim_;
  std::vector<ibv_context*> contexts_;
};

}  // namespace kit
