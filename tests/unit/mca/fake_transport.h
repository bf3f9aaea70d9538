// A Transport whose behaviour the tests script: it links in place of the real one. Nothing
// can be sent to its peers; it keeps fragments on the heap and registers memory as it is told.
//
// Thread contract: one thread.
#pragma once

#include <cerrno>
#include <memory>
#include <string>
#include <vector>

#include "plugin/conn/peer.h"
#include "plugin/conn/transport.h"

namespace mend::test {

struct FakeTransport {
  // --- script
  int create_error = 0;  // errno that create() fails with; 0: it succeeds
  std::vector<conn::RailInfo> rails{conn::RailInfo{"fake0:1", 10000, 2, -1, 10, 64, 1u << 30}};
  bool deny_write = false;           // registering with write access fails with EFAULT
  int refuse_registrations = 0;      // that many registrations fail with ENOMEM
  bool no_fragments = false;         // alloc_frag() returns null
  int add_peer_error = ENOTSUP;      // errno that add_peer() fails with; 0: it succeeds
  bool peers_used = false;           // what ever_used() says
  void (*during_close)() = nullptr;  // what happens while close() runs
  std::string stats = "{}";
  // --- what happened
  conn::Params params;  // as given to create()
  conn::Identity identity;
  conn::Upcalls upcalls;
  std::vector<unsigned> accesses;                  // of each register_region() call
  std::vector<std::unique_ptr<conn::Peer>> peers;  // as they were added
  std::vector<const conn::Peer*> given_up;
  std::vector<std::uint32_t> given_up_ranks;  // by give_up_process()
  int frags_out = 0;                          // fragments not given back
  int regions_out = 0;                        // regions not given back
  bool closed = false;
  int closed_before_regions = -1;  // regions still registered when close() was called
  int alive = 0;                   // transports in existence
};

// The script and record of the current test; reset() starts afresh.
FakeTransport& fake();
void reset_fake();

}  // namespace mend::test
