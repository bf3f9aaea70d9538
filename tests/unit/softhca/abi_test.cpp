// The library as a loader sees it: every public symbol of libibverbs 44 in its version node, usable
// through dlopen with RTLD_LOCAL, own SONAME, nothing else exported. Usage: softhca_abi_test
// LIBSOFTHCA.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace {

std::string library_path;

struct Handle {
  Handle() : lib(dlopen(library_path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (lib == nullptr) ADD_FAILURE() << dlerror();
  }
  ~Handle() {
    if (lib != nullptr) dlclose(lib);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  void* lib;
};

const std::vector<std::pair<const char*, std::vector<const char*>>> kSymbols{
    {"IBVERBS_1.0",
     {"ibv_copy_path_rec_from_kern", "ibv_copy_path_rec_to_kern", "ibv_copy_qp_attr_from_kern",
      "ibv_create_comp_channel", "ibv_destroy_comp_channel", "ibv_get_sysfs_path",
      "ibv_rate_to_mult", "ibv_read_sysfs_file", "mult_to_ibv_rate"}},
    {"IBVERBS_1.1", {"ibv_ack_async_event", "ibv_ack_cq_events",     "ibv_alloc_pd",
                     "ibv_attach_mcast",    "ibv_close_device",      "ibv_copy_ah_attr_from_kern",
                     "ibv_create_ah",       "ibv_create_ah_from_wc", "ibv_create_cq",
                     "ibv_create_qp",       "ibv_create_srq",        "ibv_dealloc_pd",
                     "ibv_dereg_mr",        "ibv_destroy_ah",        "ibv_destroy_cq",
                     "ibv_destroy_qp",      "ibv_destroy_srq",       "ibv_detach_mcast",
                     "ibv_dofork_range",    "ibv_dontfork_range",    "ibv_event_type_str",
                     "ibv_fork_init",       "ibv_free_device_list",  "ibv_get_async_event",
                     "ibv_get_cq_event",    "ibv_get_device_guid",   "ibv_get_device_list",
                     "ibv_get_device_name", "ibv_init_ah_from_wc",   "ibv_modify_qp",
                     "ibv_modify_srq",      "ibv_node_type_str",     "ibv_open_device",
                     "ibv_port_state_str",  "ibv_query_device",      "ibv_query_gid",
                     "ibv_query_pkey",      "ibv_query_port",        "ibv_query_qp",
                     "ibv_query_srq",       "ibv_rate_to_mbps",      "ibv_reg_mr",
                     "ibv_rereg_mr",        "ibv_resize_cq",         "ibv_resolve_eth_l2_from_gid",
                     "ibv_wc_status_str",   "mbps_to_ibv_rate"}},
    {"IBVERBS_1.5", {"ibv_get_pkey_index"}},
    {"IBVERBS_1.6", {"ibv_qp_to_qp_ex"}},
    {"IBVERBS_1.7", {"ibv_reg_mr_iova"}},
    {"IBVERBS_1.8", {"ibv_reg_mr_iova2"}},
    {"IBVERBS_1.9", {"ibv_get_device_index"}},
    {"IBVERBS_1.10",
     {"ibv_import_device", "ibv_import_mr", "ibv_import_pd", "ibv_query_ece", "ibv_set_ece",
      "ibv_unimport_mr", "ibv_unimport_pd"}},
    {"IBVERBS_1.11", {"_ibv_query_gid_ex", "_ibv_query_gid_table"}},
    {"IBVERBS_1.12", {"ibv_reg_dmabuf_mr"}},
    {"IBVERBS_1.13", {"ibv_import_dm", "ibv_is_fork_initialized", "ibv_unimport_dm"}},
    {"IBVERBS_1.14", {"ibv_query_qp_data_in_order"}},
    {"IBVERBS_PRIVATE_34", {"ibv_query_gid_type"}},
};

TEST(Abi, EverySymbolInItsNode) {
  Handle h;
  ASSERT_NE(h.lib, nullptr);
  for (const auto& [node, names] : kSymbols)
    for (const char* name : names) {
      EXPECT_NE(dlvsym(h.lib, name, node), nullptr) << name << "@" << node;
      EXPECT_NE(dlsym(h.lib, name), nullptr) << name;
    }
}

TEST(Abi, NothingElseIsExported) {
  size_t expected = 0;
  for (const auto& [node, names] : kSymbols) expected += names.size();
  const std::string command = "nm -D --defined-only '" + library_path + "' | grep -c ' [TWVDB] '";
  FILE* out = popen(command.c_str(), "r");
  ASSERT_NE(out, nullptr);
  char line[64] = "";
  ASSERT_NE(fgets(line, sizeof line, out), nullptr);
  pclose(out);
  EXPECT_EQ(std::strtoul(line, nullptr, 10), expected);
}

template <typename Function>
Function* find(const Handle& h, const char* name) {
  return reinterpret_cast<Function*>(dlsym(h.lib, name));
}

TEST(Abi, UsableThroughRtldLocal) {
  setenv("SOFTHCA_FABRIC", ("ut-abi-" + std::to_string(getpid())).c_str(), 1);
  Handle h;
  ASSERT_NE(h.lib, nullptr);
  int n = 0;
  ibv_device** list = find<decltype(ibv_get_device_list)>(h, "ibv_get_device_list")(&n);
  ASSERT_NE(list, nullptr);
  ASSERT_EQ(n, 1);
  ibv_context* ctx = find<decltype(ibv_open_device)>(h, "ibv_open_device")(list[0]);
  ASSERT_NE(ctx, nullptr);
  ibv_device_attr_ex ex{};
  const ibv_query_device_ex_input input{};
  // The extended calls are inline functions over the context's table: they need no symbol.
  verbs_context* vctx = verbs_get_ctx(ctx);
  ASSERT_NE(vctx, nullptr);
  ASSERT_NE(vctx->query_device_ex, nullptr);
  EXPECT_EQ(vctx->query_device_ex(ctx, &input, &ex, sizeof ex), 0);
  EXPECT_GT(ex.orig_attr.max_qp, 0);
  ibv_port_attr port{};
  EXPECT_EQ(vctx->query_port(ctx, 1, &port, sizeof port), 0);
  EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
  EXPECT_EQ(find<decltype(ibv_close_device)>(h, "ibv_close_device")(ctx), 0);
  find<decltype(ibv_free_device_list)>(h, "ibv_free_device_list")(list);
}

TEST(Abi, OwnSoname) {
  Handle h;
  ASSERT_NE(h.lib, nullptr);
  const std::string command = "readelf -d '" + library_path + "' | grep -c 'SONAME.*libsofthca.so'";
  EXPECT_EQ(std::system(("test \"$(" + command + ")\" = 1").c_str()), 0);
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc < 2) return 2;
  library_path = argv[1];
  return RUN_ALL_TESTS();
}
