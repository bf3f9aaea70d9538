// Whether the libucs of this process is of the UCX that mend was built against. Neither its soname
// nor its symbols carry a version, and its calls changed their arguments (1.14), so nobody else
// notices.
//
// Thread contract: any thread; nothing of ucs is called.
#pragma once

#include <string>

namespace mend::ops {

// What can be told of the libucs that is loaded, without running it.
struct UcsFound {
  bool pool_takes_params = false;  // 1.14 and later
  unsigned major = 0, minor = 0;   // as libucp says where it is loaded; 0.0: it is not
};
UcsFound find_ucs();

// Empty where it fits. Else what was found, as "1.18" or "older than 1.14".
std::string ucs_mismatch(const UcsFound& found);
std::string built_ucs();  // "1.13"

}  // namespace mend::ops
