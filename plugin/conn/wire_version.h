// What two builds of mend have to have alike in order to understand each other, and the number that
// stands for it. A process publishes the number as the first byte of its modex; one that reads
// another there leaves the peer to other transports (docs/protocol.md 1.2).
//
// Thread contract: constants only. Invariant: what is compared with kWire differs from the line
// before it, so nothing that is listed here changes without a number of its own. A change of
// meaning that leaves all sizes alone needs a new line as well; no assertion can see that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

#include "ops/wire.h"
#include "plugin/conn/ctl_wire.h"

namespace mend::conn {

struct Wire {
  std::uint8_t version;
  std::size_t handle;  // of a registration, as Open MPI hands it to peers (plugin/mca)
  std::size_t data_header, atomic_request, atomic_response;
  std::uint8_t control;  // the version byte of control messages
};

// Where an assertion fails: never change a line, append one with the next version.
constexpr Wire kWires[] = {
    {1, 44, 16, 32, 16, 1},  // the first
    {2, 48, 16, 32, 16, 1},  // the handle is a multiple of 8 bytes
};
constexpr Wire kWire = kWires[std::size(kWires) - 1];

static_assert(kWire.version == std::size(kWires), "versions are counted from 1");
static_assert(kWire.data_header == sizeof(ops::DataHeader), "append a line to kWires");
static_assert(kWire.atomic_request == sizeof(ops::AmoRequest), "append a line to kWires");
static_assert(kWire.atomic_response == sizeof(ops::AmoResponse), "append a line to kWires");
static_assert(kWire.control == kCtlVersion, "append a line to kWires");

constexpr std::uint8_t kModexVersion = kWire.version;

}  // namespace mend::conn
