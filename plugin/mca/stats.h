// The statistics line of this process: where btl_mend_stats wants it.
//
// Thread contract: once, from the last module's finalize.
#pragma once

#include <cstdint>
#include <string>

namespace mend::mca {

// destination: empty (nowhere), "stderr", or PREFIX (to the file PREFIX.<rank>). False with errno
// set when the file cannot be written.
bool write_stats(const std::string& destination, std::uint32_t rank, const std::string& json);

}  // namespace mend::mca
