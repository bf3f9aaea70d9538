// The MCA parameters of the component (btl_mend_*): their registration with help text, unit and
// legal range, and the check that turns them into conn::Params.
//
// Thread contract: register and check from the thread that opens the component; read-only
// afterwards. Invariant: a value that reaches conn::Params lies in the range its help text names.
#pragma once

#include <optional>
#include <string>

#include "plugin/conn/params.h"
#include "plugin/mca/ompi_compat.h"

namespace mend::mca {

struct Settings {
  conn::Params conn;
  // What the standard BTL parameters (eager_limit, flags, ...) write to; every module starts as a
  // copy of it.
  mca_btl_base_module_t module{};
};

// Where Open MPI stores what the user set. One per process, as long as the component is loaded.
Settings& settings();

// Registers everything; `settings().module` holds the defaults and the function table already.
int register_params(mca_base_component_t& component);

// What is wrong with a parameter, for the help message.
struct BadParam {
  std::string name;   // as on the command line: btl_mend_window
  std::string value;  // as the user gave it
  std::string legal;  // what would have been right
};

// Checks all values and completes settings(). The first that is out of range is returned.
std::optional<BadParam> check_params();

}  // namespace mend::mca
