// The statistics as MPI_T performance variables, btl_mend_<name>.
//
// Thread contract: registration from the thread that opens the component; reads from any
// application thread.
#pragma once

#include "plugin/mca/ompi_compat.h"

namespace mend::mca {

int register_pvars(const mca_base_component_t& component);

}  // namespace mend::mca
