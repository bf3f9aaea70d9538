// Schedules of the Promela models, as trace_models.py writes them: one line for each thing that a
// machine of the model does.
//   step SIDE EVENT EPOCH     a machine takes a step; SIDE is 0 (leader) or 1 (follower), EVENT one
//                             of submit, fence, lost, suspect, receive, data, close, flushed,
//                             waited, deadline, or the type of a message
//   fenced SIDE RX ACKED TX   what the fence counted
//   send SIDE MESSAGE EPOCH RX
//   replay SIDE RX            the log is replayed from RX
//   log SIDE                  the log is empty
//   gaveup SIDE FATAL         reported to the application
//   closed SIDE
//   end SIDE STATE EPOCH takes MESSAGE EPOCH ... keeps MESSAGE EPOCH ... [tells MESSAGE EPOCH ...]
// `takes`: of which epoch a message would be acted upon now (REQ: of this and later ones), `keeps`:
// of which epoch it is being repeated, `tells`: with which epoch it answers whatever the other side
// repeats; 255 for none. All concern both machines; MESSAGE>SIDE is one to that side only.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plugin/conn/fsm.h"

namespace mend::conn::model {

constexpr std::uint32_t kNone = 255;

struct TraceLine {
  std::string verb;
  int side = 0;
  std::string name;                    // step: the event; send: the message; end: the state
  std::vector<std::uint32_t> numbers;  // what follows
  std::map<std::string, std::uint32_t> takes, keeps, tells;
};

using Trace = std::vector<TraceLine>;

// Nothing if the file is no trace.
std::optional<Trace> read_trace(const std::string& path);

}  // namespace mend::conn::model
