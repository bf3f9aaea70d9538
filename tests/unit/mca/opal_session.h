// OPAL as a process under mpirun has it when it opens BTLs, without a runtime: MCA variables, help
// texts, and a modex that ends in this process.
//
// Thread contract: one thread; one OPAL per process, opened on first use.
#pragma once

#include <string>
#include <vector>

#include "plugin/mca/ompi_compat.h"

namespace mend::test {

// Registers the component's parameters with `variables` ("window=64") set, as a fresh process
// would.
void register_component(const std::vector<std::string>& variables = {});

// The component's modules from init to finalize.
class Session {
 public:
  explicit Session(const std::vector<std::string>& variables = {});
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int count() const { return count_; }
  mca_btl_base_module_t* module(int i = 0) const { return modules_[i]; }
  mca_btl_base_endpoint_t* self(int i = 0);          // the endpoint of this process
  const std::string& said() const { return said_; }  // what init wrote to stderr
  std::string finish();  // finalizes all modules; what that wrote to stderr

 private:
  mca_btl_base_module_t** modules_ = nullptr;
  int count_ = 0;
  std::string said_;
};

}  // namespace mend::test
