// Open MPI's descriptors, built inside the fragments that carry the message: header and payload lie
// behind the descriptor in registered memory, contiguous, so that nothing is copied when it is
// sent.
//
// Thread contract: a descriptor belongs to its holder; any application thread.
// Invariant: a descriptor's one segment starts at the frag's payload; its length is what will be
// sent.
#pragma once

#include <cstddef>

#include "ops/request.h"
#include "plugin/mca/ompi_compat.h"

namespace mend::mca {

struct Descriptor {
  mca_btl_base_descriptor_t base;  // first: Open MPI's pointer is ours
  mca_btl_base_segment_t segment;
  mca_btl_base_endpoint_t* endpoint;
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
bool must_hold_back(const mca_btl_base_endpoint_t& endpoint);

}  // namespace mend::mca
