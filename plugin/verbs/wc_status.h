// What a completion status means for the connection: the white list of repairable faults
// (docs/protocol.md 1.6, 1.9). Pure; no locking.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace mend::verbs {

enum class WcClass : std::uint8_t {
  Success,
  Flush,         // says nothing about the cause: the QP was already in error
  LinkLike,      // the path or the peer's QP is gone: recover, for as long as max_outage allows
  LocalFault,    // our own buffer or key: one repair, then fatal
  RemoteAccess,  // the peer's key or range: one key refresh, then fatal
};
WcClass classify(ibv_wc_status status);

const char* wc_status_name(
    ibv_wc_status status);  // "RETRY_EXC_ERR"; the names the verbs documents use
const char* to_string(WcClass wc_class);

}  // namespace mend::verbs
