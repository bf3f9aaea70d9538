#include "plugin/mca/params.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "plugin/conn/param_table.h"

namespace mend::mca {
namespace {

using conn::Params;

// What Open MPI stores for the text parameters, in the order of the table; it owns the strings.
std::vector<char*>& text_storage() {
  static std::vector<char*> storage(conn::text_params().size());
  return storage;
}

template <typename Value>
int register_var(const mca_base_component_t& component, const char* name, const std::string& help,
                 mca_base_var_type_t type, int level, Value* storage) {
  return mca_base_component_var_register(
      &component, name, help.c_str(), type, nullptr, 0, static_cast<mca_base_var_flag_t>(0),
      static_cast<mca_base_var_info_lvl_t>(OPAL_INFO_LVL_1 + level - 1),
      MCA_BASE_VAR_SCOPE_READONLY, storage);
}

int register_int(const mca_base_component_t& component, const conn::IntParam& p) {
  return register_var(component, p.name, fmt::format("{} ({})", p.help, p.range()),
                      MCA_BASE_VAR_TYPE_INT, p.level, &(settings().conn.*p.field));
}

int register_text(const mca_base_component_t& component, const conn::TextParam& p, char*& storage) {
  const std::string& initial = settings().conn.*p.field;
  storage = initial.empty() ? nullptr : const_cast<char*>(initial.c_str());  // Open MPI copies it
  return register_var(component, p.name, p.help, MCA_BASE_VAR_TYPE_STRING, p.level, &storage);
}

std::string text(const char* value) { return value == nullptr ? "" : value; }

BadParam bad(const std::string& name, std::string value, std::string legal) {
  return BadParam{"btl_mend_" + name, std::move(value), std::move(legal)};
}

void take_texts(Params& conn) {
  const auto table = conn::text_params();
  for (std::size_t i = 0; i < table.size(); ++i) conn.*table[i].field = text(text_storage()[i]);
  if (conn.verbs_library.empty()) conn.verbs_library = "auto";
}

// The standard BTL parameters, as far as a wrong value would break more than speed.
std::optional<BadParam> check_standard(const mca_btl_base_module_t& module) {
  struct Size {
    const char* name;
    std::size_t value, low, high;
  };
  constexpr std::size_t kHeader = 256;  // room for the largest header of the layers above
  const std::size_t max_send = module.btl_max_send_size;
  const Size sizes[] = {
      {"max_send_size", max_send, 1024, 1u << 22},
      {"eager_limit", module.btl_eager_limit, kHeader, max_send},
      {"rndv_eager_limit", module.btl_rndv_eager_limit, kHeader, max_send},
      {"rdma_pipeline_frag_size", module.btl_rdma_pipeline_frag_size, 4096, std::size_t{1} << 40},
      {"get_limit", module.btl_get_limit, 1, SIZE_MAX},
      {"put_limit", module.btl_put_limit, 1, SIZE_MAX},
  };
  for (const Size& s : sizes) {
    if (s.value < s.low || s.value > s.high) {
      return bad(s.name, std::to_string(s.value), fmt::format("{} to {} bytes", s.low, s.high));
    }
  }
  return std::nullopt;
}

}  // namespace

Settings& settings() {
  static Settings the_settings;
  return the_settings;
}

int register_params(mca_base_component_t& component) {
  Settings& s = settings();
  for (const conn::IntParam& p : conn::int_params())
    if (register_int(component, p) < 0) return OPAL_ERROR;
  const auto texts = conn::text_params();
  for (std::size_t i = 0; i < texts.size(); ++i)
    if (register_text(component, texts[i], text_storage()[i]) < 0) return OPAL_ERROR;
  for (const conn::FlagParam& p : conn::flag_params())
    if (register_var(component, p.name, p.help, MCA_BASE_VAR_TYPE_BOOL, p.level,
                     &(s.conn.*p.field)) < 0)
      return OPAL_ERROR;
  for (const conn::SizeParam& p : conn::size_params()) {
    static_assert(sizeof(unsigned long long) == sizeof(std::uint64_t));
    if (register_var(component, p.name, p.help, MCA_BASE_VAR_TYPE_UNSIGNED_LONG_LONG, p.level,
                     reinterpret_cast<unsigned long long*>(&(s.conn.*p.field))) < 0)
      return OPAL_ERROR;
  }
  return mca_btl_base_param_register(&component, &s.module);
}

std::optional<BadParam> check_params() {
  Settings& s = settings();
  take_texts(s.conn);
  if (auto wrong = conn::first_illegal(s.conn)) return bad(wrong->name, wrong->value, wrong->legal);
  if (auto wrong = check_standard(s.module)) return wrong;
  s.conn.max_send_size = static_cast<std::uint32_t>(s.module.btl_max_send_size);
  s.conn.small_frag_size = std::min(s.conn.small_frag_size, s.conn.max_send_size);
  return std::nullopt;
}

}  // namespace mend::mca
