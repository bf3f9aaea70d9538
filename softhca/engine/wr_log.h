// A record of executed work requests, for tests that ask what the device did rather than what the
// application saw. Off (a null pointer) unless a simulation asks for it.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <vector>

#include "softhca/fault/fault_rule.h"

namespace softhca {

struct Qp;
struct SendWr;
struct ExecResult;

// How an attempt to execute a work request ended.
enum class Outcome : uint8_t {
  Done,         // executed and acknowledged
  NotReady,     // receiver not ready: try again after its timer
  NoAnswer,     // nobody acknowledges: try again until the retry counter is used up
  LocalError,   // status says what; nothing was sent
  RemoteError,  // negative acknowledgement; status says which
  NoEffect,     // succeeds without one: a repeat, or an unreliable message that nobody took
  Held,         // fault schedule: look again at Flight::wake
  Refused,      // fault schedule: the post fails with Flight::refusal
};

// One attempt to execute a request. A request is in the log once per attempt, and executed in at
// most one of them, unless it is an RDMA read, a datagram that was duplicated, or a ghost.
struct WrLogEntry {
  uint64_t time = 0;  // of the attempt
  uint64_t wr_id = 0;
  uint32_t src_qpn = 0;
  uint32_t dest_qpn = 0;
  int32_t src_node = kAnyRank;   // in the order in which the simulation opened them
  int32_t dest_node = kAnyRank;  // kAnyRank: nobody has that queue pair number
  uint32_t length = 0;
  uint32_t psn = 0;
  uint64_t remote_addr = 0;  // RDMA and atomics
  ibv_wr_opcode opcode = IBV_WR_SEND;
  uint8_t qp_type = 0;                // ibv_qp_type
  uint8_t outcome = 0;                // Outcome, as the requester sees it
  bool executed = false;              // it had its effect at the responder in this attempt
  bool ghost = false;                 // a late packet, not its queue pair's present work
  FaultKind fault = FaultKind::None;  // what the schedule did to it
  uint8_t head_length = 0;
  std::array<unsigned char, 32> head{};  // the first bytes of what was sent
};

using WrLog = std::vector<WrLogEntry>;

struct AttemptNote {
  bool executed = false;
  bool ghost = false;
  FaultKind fault = FaultKind::None;
};
// Adds an entry; nothing happens without a log. Thread safe.
void log_attempt(Qp& qp, const SendWr& wr, const ExecResult& result, const AttemptNote& note);

}  // namespace softhca
