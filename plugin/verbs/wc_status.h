// The names of completion statuses. What mend does about each is plugin/conn/error_policy.h. Pure;
// no locking.
#pragma once

#include <infiniband/verbs.h>

namespace mend::verbs {

const char* wc_status_name(
    ibv_wc_status status);  // "RETRY_EXC_ERR"; the names the verbs documents use

}  // namespace mend::verbs
