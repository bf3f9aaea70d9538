// The statistics line of this process: where btl_mend_stats wants it.
//
// Thread contract: once, from the last module's finalize.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace mend::mca {

// What tells the files of processes apart: "3" for rank 3 of a job that was started, "2.3" for rank
// 3 of one that another job spawned (2: its number within the family of jobs).
std::string stats_suffix(std::uint32_t rank, std::optional<std::uint32_t> spawned_job);

// destination: empty (nowhere), "stderr", or PREFIX (to the file PREFIX.<suffix>). False with errno
// set when the file cannot be written.
bool write_stats(const std::string& destination, const std::string& suffix,
                 const std::string& json);

}  // namespace mend::mca
