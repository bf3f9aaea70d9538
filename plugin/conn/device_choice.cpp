#include "plugin/conn/device_choice.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "plugin/conn/rail_order.h"
#include "plugin/verbs/device.h"
#include "plugin/verbs/log.h"
#include "topo/device_list.h"

namespace mend::conn {
namespace {

namespace fs = std::filesystem;

// The folder of the object this code is in: the component, or a program, whose name is what it was
// called by, so without a folder if the shell has found it in the PATH.
fs::path own_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&choose_devices), &info) == 0 ||
      info.dli_fname == nullptr)
    return {};
  const fs::path named = info.dli_fname;
  std::error_code ignored;
  const fs::path file =
      named.has_parent_path() ? named : fs::read_symlink("/proc/self/exe", ignored);
  return fs::weakly_canonical(file.parent_path(), ignored);
}

std::vector<fs::path> softhca_places(const Params& params) {
  const std::string name = "libsofthca.so";
  std::vector<fs::path> places;
  std::error_code ignored;
  if (!params.softhca_path.empty()) {
    const fs::path given = params.softhca_path;
    places.push_back(fs::is_directory(given, ignored) ? given / name : given);
    return places;
  }
  const fs::path own = own_folder();
  places.push_back(own / name);
  places.push_back(own.parent_path() / "lib" / name);
  places.push_back(own.parent_path() / name);  // <prefix>/lib/openmpi/mca_btl_mend.so, <prefix>/lib
  places.push_back(fs::path(MEND_INSTALL_LIBDIR) / name);
  return places;
}

Result<const verbs::Api*> load_softhca(const Params& params, const Identity& self) {
  // The fabric of the embedded device is this mpirun's alone, unless the user names one.
  if (!self.fabric.empty()) setenv("SOFTHCA_FABRIC", self.fabric.c_str(), 0);
  std::string tried;
  for (const fs::path& place : softhca_places(params)) {
    std::error_code ignored;
    if (!fs::exists(place, ignored)) {
      tried += (tried.empty() ? "" : ", ") + place.string();
      continue;
    }
    return verbs::load(place.string());
  }
  return fail(ENOENT, "libsofthca.so",
              fmt::format("the embedded device's library was not found (looked at {}); set "
                          "btl_mend_softhca_path to the folder that holds libsofthca.so",
                          tried));
}

struct Candidate {
  Nic* nic;
  topo::Port name;
};

// Opens every device; one that cannot be opened is left out (no permission is the ordinary case on
// a machine whose administrator keeps RDMA to others). Returned: the last refusal for want of
// memory, which the user should hear of if nothing else is left.
std::optional<Error> open_all(const verbs::DeviceList& list, Devices& devices,
                              std::vector<Candidate>& found) {
  std::optional<Error> refused;
  for (std::size_t i = 0; i < list.size(); ++i) {
    auto nic = Nic::open(*devices.api, list[i]);
    if (!nic) {
      log(LogLevel::Info, nic.error().message);
      if (nic.error().code == ENOMEM) refused = nic.error();
      continue;
    }
    for (std::uint32_t port = 1; port <= (*nic)->caps().ports; ++port)
      found.push_back({nic->get(), {(*nic)->name(), static_cast<int>(port)}});
    devices.nics.push_back(std::move(*nic));
  }
  return refused;
}

bool active(const Candidate& candidate) {
  const Nic& nic = *candidate.nic;
  const auto port =
      verbs::query_port(nic.api(), nic.context(), static_cast<std::uint8_t>(candidate.name.number));
  if (port && !port->active)
    log(LogLevel::Info, fmt::format("{}:{} is {}, not used", candidate.name.device,
                                    candidate.name.number, verbs::port_state_name(port->state)));
  return port && port->active;
}

Result<Devices> use_library(const verbs::Api& api, DeviceKind kind, const Params& params,
                            const std::function<void()>& before_open) {
  Devices devices;
  devices.api = &api;
  devices.kind = kind;
  auto list = verbs::DeviceList::query(api);
  if (!list) return tl::unexpected(list.error());
  if (list->size() > 0 && before_open) before_open();
  std::vector<Candidate> found;
  const auto refused = open_all(*list, devices, found);
  std::vector<topo::Port> names;
  for (const Candidate& candidate : found) names.push_back(candidate.name);
  if (names.empty() && refused) return tl::unexpected(*refused);
  if (names.empty()) return fail(ENODEV, "device", "no RDMA device that can be opened");
  const auto selected = topo::select_ports(names, params.if_include, params.if_exclude);
  if (!selected) return tl::unexpected(selected.error());
  for (const std::size_t index : *selected)
    if (active(found[index]))
      devices.ports.push_back(
          {found[index].nic, static_cast<std::uint8_t>(found[index].name.number), -1});
  if (devices.ports.empty())
    return fail(
        params.if_include.empty() ? ENODEV : ENETDOWN, "port",
        params.if_include.empty()
            ? std::string("no active RDMA port")
            : fmt::format("no port of btl_mend_if_include = {} is active; bring the link up "
                          "or name another port",
                          params.if_include));
  std::stable_sort(devices.ports.begin(), devices.ports.end(),
                   [](const ChosenPort& a, const ChosenPort& b) {
                     return topo::name_less(a.nic->name(), b.nic->name());
                   });
  return devices;
}

}  // namespace

Result<Devices> choose_devices(const Params& params, const Identity& self,
                               const std::function<void()>& before_open) {
  auto devices = active_ports(params, self, before_open);
  if (!devices) return devices;
  order_by_place(params, self, *devices);
  if (devices->ports.size() > kMaxRails) devices->ports.resize(kMaxRails);
  return devices;
}

Result<Devices> active_ports(const Params& params, const Identity& self,
                             const std::function<void()>& before_open) {
  if (params.verbs_library != "auto" && params.verbs_library != "softhca") {
    auto api = verbs::load(params.verbs_library);
    if (!api) return tl::unexpected(api.error());
    return use_library(**api, DeviceKind::Verbs, params, before_open);
  }
  if (params.verbs_library == "auto") {
    const auto api = verbs::load("libibverbs.so.1");
    Result<Devices> real = api ? use_library(**api, DeviceKind::Verbs, params, before_open)
                               : Result<Devices>(tl::unexpected(api.error()));
    const bool none = !real && (!api || real.error().code == ENODEV || real.error().code == ENOSYS);
    if (!none || !params.embedded_allowed) {
      if (!real && none) real.error().code = ENODEV;
      return real;
    }
    log(LogLevel::Info, "no RDMA device (" + real.error().message + "): trying the embedded one");
  }
  const auto api = load_softhca(params, self);
  if (!api) {
    Error error = api.error();
    const bool wished = params.verbs_library == "softhca" || !params.softhca_path.empty();
    if (!wished) error.code = ENODEV;
    if (!params.softhca_path.empty()) error.object = "btl_mend_softhca_path";
    return tl::unexpected(error);
  }
  return use_library(**api, DeviceKind::Softhca, params, before_open);
}

}  // namespace mend::conn
