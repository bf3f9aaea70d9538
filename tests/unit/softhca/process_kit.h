// Two children on one fabric: opening the device there, and connecting through the parent.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "tests/unit/softhca/child.h"
#include "tests/unit/softhca/verbs_kit.h"

namespace kit {

struct Address {
  uint32_t qpn;
  uint32_t rkey;
  uint64_t buf;
};

// The first device of the library; null and a failure if there is none.
ibv_context* open_device();

// A child's side: exchanges addresses through the parent and brings the QP up.
bool connect_through(Link& link, Qp& qp, Address* peer);

// The parent's part: swaps the addresses and lets both go.
void introduce(Child& a, Child& b);

}  // namespace kit
