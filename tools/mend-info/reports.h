// The other reports of mend-info: each prints to standard output; an error is for the caller to
// say.
#pragma once

#include "plugin/conn/params.h"
#include "plugin/verbs/error.h"

namespace mend::info {

// Every device: limits, ports, GIDs with their kind and the one that would be used, memlock.
Result<void> report_devices(const conn::Params& params);

// Queue depths and memory of one process that talks to `peers` others, per rail, by the formulas
// that the transport uses. device: "name" of a present one; empty: the first usable.
Result<void> report_sizes(const conn::Params& params, unsigned peers, const std::string& device);

// All parameters of the component with value, default, range and meaning.
void report_params(const conn::Params& params);

}  // namespace mend::info
