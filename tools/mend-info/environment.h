// The parameters as a job started from this shell would see them: OMPI_MCA_btl_mend_<name>.
#pragma once

#include "plugin/conn/params.h"
#include "plugin/verbs/error.h"

namespace mend::info {

// EINVAL: a value that the component would refuse, with its legal range.
Result<conn::Params> params_of_environment();

}  // namespace mend::info
