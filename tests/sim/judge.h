// Judge: reads the device's own log of executed requests, not mend's counters, and says what must
// not have happened: a SEND executed twice, out of order or never, a put executed behind the
// message that told of it.
// It also reads the control messages as they leave: epochs only grow (F2), what is offered for an
// epoch never changes (F2, F6), and nobody sends to a queue pair that was not connected yet (F5).
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
  Judge(softhca::sim::Fabric& fabric, Tap& tap, Traffic& traffic);

  void look();                            // takes what the log has got since
  void next_sequence(std::uint32_t seq);  // of every SEND from now on, whoever sends it
  void at_the_end();                      // everything was submitted and is done

  // What the device executed, to show that a test's traffic was real.
  std::uint64_t executed() const { return executed_; }
  std::uint64_t put_repeats() const { return put_repeats_; }
  std::uint64_t not_ready() const { return not_ready_; }  // attempts that found no receive buffer

 private:
  struct Flow {
    std::uint64_t executed = 0;  // SENDs, each sequence number once
    std::uint32_t first = 0;     // sequence number of the first
    std::uint64_t data = 0;      // of these, messages of the traffic
  };

  // What a process offered for an epoch in its REQ or REP.
  struct Offered {
    std::uint32_t epoch = 0;
    std::uint32_t qpn = 0;
    std::uint32_t psn = 0;
  };

  void judge_message(std::size_t node, const conn::CtlMessage& message);
  void judge_send(std::size_t from, std::size_t to, const ops::DataHeader& header);
  void judge_write(std::size_t to, std::uint64_t address);

  softhca::sim::Fabric& fabric_;
  Tap& tap_;
  Traffic& traffic_;
  std::map<std::pair<std::size_t, std::size_t>, Flow> flows_;
  std::map<std::pair<std::size_t, std::uint64_t>, std::uint64_t> writes_;
  std::map<std::pair<std::size_t, std::uint32_t>, Offered> offered_;  // by node and peer
  std::uint64_t executed_ = 0;
  std::uint64_t put_repeats_ = 0;
  std::uint64_t not_ready_ = 0;
};

}  // namespace mend::sim
