// Who sent a UD datagram, from the 40 bytes in front of its payload. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "plugin/verbs/gid.h"

namespace mend::verbs {

constexpr std::size_t kGrhBytes = 40;

// The source GID: of the IPv6-shaped header (InfiniBand, RoCE v1, RoCE v2 over IPv6) at byte 0, or
// of the IPv4 header that RoCE v2 over IPv4 leaves in the last 20 bytes (mapped into
// ::ffff:a.b.c.d). Empty: neither is there. Only meaningful when the completion has IBV_WC_GRH.
std::optional<Gid> source_gid(std::span<const std::byte, kGrhBytes> grh);

}  // namespace mend::verbs
