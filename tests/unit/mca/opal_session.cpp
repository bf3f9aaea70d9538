#include "tests/unit/mca/opal_session.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "plugin/mca/component.h"
#include "plugin/mca/params.h"

namespace mend::test {
namespace {

void open_opal() {
  static const bool opened = [] {
    int argc = 0;
    char** argv = nullptr;
    setenv("OMPI_MCA_mca_base_param_files", "none", 1);
    const int rc = opal_init(&argc, &argv);
    static char host[] = "testhost";
    opal_process_info.nodename = host;
    opal_proc_local_get()->proc_name = opal_process_name_t{1, 0};
    opal_show_help_add_dir(MEND_HELP_DIR);
    // The flag and atomics enumerators of the standard parameters come with the framework.
    // MPI_Init opens the registration caches before the BTLs.
    return rc == OPAL_SUCCESS && mca::compat::be_alone() &&
           mca_base_framework_open(&opal_rcache_base_framework,
                                   static_cast<mca_base_open_flag_t>(0)) == OPAL_SUCCESS &&
           mca_base_framework_register(&opal_btl_base_framework, MCA_BASE_REGISTER_STATIC_ONLY) ==
               OPAL_SUCCESS;
  }();
  ASSERT_TRUE(opened);
}

void forget_variables() {
  const int group = mca_base_var_group_find("opal", "btl", "mend");
  if (group >= 0) mca_base_var_group_deregister(group);
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (text.starts_with("OMPI_MCA_btl_mend_")) names.push_back(text.substr(0, text.find('=')));
  }
  for (const std::string& name : names) unsetenv(name.c_str());
}

}  // namespace

void register_component(const std::vector<std::string>& variables) {
  open_opal();
  forget_variables();
  for (const std::string& variable : variables) {
    const std::size_t equals = variable.find('=');
    setenv(("OMPI_MCA_btl_mend_" + variable.substr(0, equals)).c_str(),
           variable.substr(equals + 1).c_str(), 1);
  }
  mca::settings() = mca::Settings{};
  mca_btl_mend_component.btl_version.mca_open_component();
  ASSERT_EQ(mca_btl_mend_component.btl_version.mca_register_component_params(), OPAL_SUCCESS);
}

Session::Session(const std::vector<std::string>& variables) {
  register_component(variables);
  testing::internal::CaptureStderr();
  modules_ = mca_btl_mend_component.btl_init(&count_, true, false);
  said_ = testing::internal::GetCapturedStderr();
}

Session::~Session() {
  if (count_ > 0) finish();
}

mca_btl_base_endpoint_t* Session::self(int i) {
  opal_proc_t* me = opal_proc_local_get();
  mca_btl_base_endpoint_t* endpoint = nullptr;
  EXPECT_EQ(module(i)->btl_add_procs(module(i), 1, &me, &endpoint, nullptr), OPAL_SUCCESS);
  return endpoint;
}

std::string Session::finish() {
  testing::internal::CaptureStderr();
  for (int i = 0; i < count_; ++i) modules_[i]->btl_finalize(modules_[i]);
  std::free(modules_);
  count_ = 0;
  return testing::internal::GetCapturedStderr();
}

}  // namespace mend::test
