// Open MPI's descriptors, built inside the fragments that carry the message: header and payload lie
// behind the descriptor in registered memory, contiguous, so that nothing is copied when it is
// sent.
//
// Fragments that were copied from the user all take the first rail, whatever module Open MPI gives
// them to: fragments of one message over several rails come out of order, and there the datatype
// engine of Open MPI 4.1 writes behind its stack (opal_convertor_set_position leaves one level
// for every gap it jumps), which damages the receive request: it waits for ever, or holds wrong
// bytes. 5.0.7 has the fault too: without this rule mpi-tests' datatypes ended with SIGSEGV
// in 6 of 6 runs on two rails, with it in none; over tcp with four links in 2 of 5. What is not
// copied, large contiguous messages, is striped by put and get; control messages stay on the rail
// of the put that they follow.
//
// Thread contract: a descriptor belongs to its holder; any application thread.
// Invariant: a descriptor's one segment starts at the frag's payload; its length is what will be
// sent.
#pragma once

#include <cstddef>

#include "ops/channel.h"
#include "ops/request.h"
#include "plugin/mca/ompi_compat.h"

namespace mend::mca {

struct Descriptor {
  mca_btl_base_descriptor_t base;  // first: Open MPI's pointer is ours
  mca_btl_base_segment_t segment;
  mca_btl_base_endpoint_t* endpoint;
  bool copied;  // its payload is the user's data
};
static_assert(sizeof(Descriptor) <= ops::Frag::kUserBytes);
static_assert(offsetof(Descriptor, base) == 0);

inline Descriptor& descriptor_of(ops::Frag& frag) {
  return *reinterpret_cast<Descriptor*>(frag.user);
}
inline ops::Frag& frag_of(mca_btl_base_descriptor_t* descriptor) {
  auto* user = reinterpret_cast<std::byte*>(descriptor);
  return *reinterpret_cast<ops::Frag*>(user - offsetof(ops::Frag, user));
}

// Prepares the one constructed descriptor that all others are copies of. From component init.
void make_descriptor_prototype();

// True when bulk data to this peer has to wait: so much is held for it already. PRIORITY messages
// never ask.
// The channel is the one that the data would take; null for this process itself.
bool must_hold_back(const mca_btl_base_endpoint_t& endpoint, const ops::Channel* channel);

}  // namespace mend::mca
