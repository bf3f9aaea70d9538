// A rail on the fake device, with parameters that keep the tests small.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "plugin/conn/qp_pool.h"
#include "plugin/conn/rail.h"
#include "tests/unit/verbs/fake_device.h"

namespace mend::conn {

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class RailKit : public testing::Test {
 protected:
  RailKit();
  void open(std::uint32_t peers = 1);  // fake and params may be changed before
  Result<std::unique_ptr<Rail>> try_open(std::uint32_t peers = 1);
  verbs::QpParams connected_to(Qpn dest) const;

  test::FakeDevice fake;
  Params params;
  std::unique_ptr<Nic> nic;
  std::unique_ptr<Rail> rail;
};

}  // namespace mend::conn
