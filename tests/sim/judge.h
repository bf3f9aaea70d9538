// Judge: reads the device's own log of executed requests, not mend's counters, and says what must
// not have happened: a SEND executed twice, out of order or never, a put executed behind the
// message that told of it.
//
// Thread contract: one thread. Invariant: look() is called before a queue pair number can come back
// (after every step of the simulation).
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "tests/sim/tap.h"
#include "tests/sim/traffic.h"

namespace mend::sim {

class Judge {
 public:
  Judge(softhca::sim::Fabric& fabric, const Tap& tap, Traffic& traffic);

  void look();        // takes what the log has got since
  void at_the_end();  // everything was submitted and is done

  // What the device executed, to show that a test's traffic was real.
  std::uint64_t executed() const { return executed_; }
  std::uint64_t put_repeats() const { return put_repeats_; }

 private:
  struct Flow {
    std::uint64_t executed = 0;  // SENDs, each sequence number once
    std::uint32_t first = 0;     // sequence number of the first
    std::uint64_t data = 0;      // of these, messages of the traffic
  };

  void judge_send(const Request& request);
  void judge_write(const Request& request);

  softhca::sim::Fabric& fabric_;
  const Tap& tap_;
  Traffic& traffic_;
  std::map<std::pair<std::size_t, std::size_t>, Flow> flows_;
  std::map<std::pair<std::size_t, std::uint64_t>, std::uint64_t> writes_;
  std::uint64_t executed_ = 0;
  std::uint64_t put_repeats_ = 0;
};

}  // namespace mend::sim
