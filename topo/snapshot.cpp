#include "topo/snapshot.h"

#include <hwloc.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>

namespace mend::topo {
namespace {

struct TopologyDelete {
  void operator()(hwloc_topology* t) const { hwloc_topology_destroy(t); }
};
using Topology = std::unique_ptr<hwloc_topology, TopologyDelete>;
struct BitmapDelete {
  void operator()(hwloc_bitmap_s* b) const { hwloc_bitmap_free(b); }
};
using Bitmap = std::unique_ptr<hwloc_bitmap_s, BitmapDelete>;

tl::unexpected<Error> hwloc_error(const char* what, const std::string& where) {
  const int code = errno;
  return fail(code, what,
              std::string(what) + (where.empty() ? "" : " of " + where) + ": " + strerror(code));
}

// The GPU back ends load vendor libraries and the x86 one visits every CPU; Linux itself knows what
// we ask. A back end that is not there cannot be skipped, which is just as well.
void skip_slow_discovery(hwloc_topology_t t) {
  for (const char* name : {"x86", "cuda", "nvml", "rsmi", "levelzero", "opencl", "gl"})
    (void)hwloc_topology_set_components(t, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, name);
}

// Only what the ranking needs: caches would just cost time.
void keep_what_matters(hwloc_topology_t t) {
  hwloc_topology_set_all_types_filter(t, HWLOC_TYPE_FILTER_KEEP_NONE);
  hwloc_topology_set_type_filter(t, HWLOC_OBJ_PACKAGE, HWLOC_TYPE_FILTER_KEEP_ALL);
  hwloc_topology_set_type_filter(t, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
  // Groups carry the locality of devices and of nodes that are smaller than a package.
  hwloc_topology_set_type_filter(t, HWLOC_OBJ_GROUP, HWLOC_TYPE_FILTER_KEEP_STRUCTURE);
  hwloc_topology_set_type_filter(t, HWLOC_OBJ_OS_DEVICE, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  hwloc_topology_set_type_filter(t, HWLOC_OBJ_PCI_DEVICE, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
}

// hwloc takes the root of another machine's files from the environment only, when it loads.
class FsRoot {
 public:
  explicit FsRoot(const std::string& root) : set_(!root.empty()) {
    if (set_) setenv("HWLOC_FSROOT", root.c_str(), 1);
  }
  ~FsRoot() {
    if (set_) unsetenv("HWLOC_FSROOT");
  }
  FsRoot(const FsRoot&) = delete;
  FsRoot& operator=(const FsRoot&) = delete;

 private:
  bool set_;
};

Result<Topology> open_topology(const Source& source) {
  // Of a root without sysfs hwloc would make up a machine.
  std::error_code ignored;
  if (!source.fsroot.empty() && !std::filesystem::is_directory(source.fsroot + "/sys", ignored))
    return fail(ENOENT, "fsroot", source.fsroot + " holds no Linux file system (no sys in it)");
  const FsRoot root(source.fsroot);
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return hwloc_error("hwloc_topology_init", "");
  Topology t(raw);
  if (!source.xml.empty() && hwloc_topology_set_xml(raw, source.xml.c_str()) != 0)
    return hwloc_error("hwloc_topology_set_xml", source.xml);
  if (!source.synthetic.empty() && hwloc_topology_set_synthetic(raw, source.synthetic.c_str()) != 0)
    return hwloc_error("hwloc_topology_set_synthetic", source.synthetic);
  skip_slow_discovery(raw);
  keep_what_matters(raw);
  if (hwloc_topology_load(raw) != 0) return hwloc_error("hwloc_topology_load", source.xml);
  return t;
}

tl::unexpected<Error> no_cpu_list(const std::string& text) {
  return fail(EINVAL, "CPU list", "\"" + text + "\" is no list of CPUs, as in 0-3,8");
}

// hwloc makes room for any CPU number that it reads.
std::size_t longest_number(const std::string& text) {
  std::size_t longest = 0, digits = 0;
  for (const char c : text) {
    digits = c >= '0' && c <= '9' ? digits + 1 : 0;
    longest = std::max(longest, digits);
  }
  return longest;
}

// May have no end ("4-").
Result<Bitmap> read_cpu_list(const std::string& text) {
  constexpr std::size_t kLongest = 1 << 16;
  constexpr std::size_t kMostDigits = 5;
  constexpr int kLastCpu = (1 << 16) - 1;
  const bool shaped = text.size() < kLongest && !text.empty() && text.front() != '-' &&
                      text.find_first_not_of("0123456789,-") == std::string::npos &&
                      longest_number(text) <= kMostDigits;
  Bitmap set(hwloc_bitmap_alloc());
  if (!shaped || hwloc_bitmap_list_sscanf(set.get(), text.c_str()) != 0 ||
      hwloc_bitmap_last(set.get()) > kLastCpu)
    return no_cpu_list(text);
  return set;
}

// Where the process may run, in the numbering of the topology. A topology from a file is taken to
// describe this node if its CPU numbers fit, which is what launchers that hand out HWLOC_XMLFILE
// mean.
Result<Bitmap> process_cpus(hwloc_topology_t t, const Source& source) {
  if (!source.binding.empty()) return read_cpu_list(source.binding);
  Bitmap cpus(hwloc_bitmap_alloc());
  if (hwloc_topology_is_thissystem(t) != 0 &&
      hwloc_get_cpubind(t, cpus.get(), HWLOC_CPUBIND_PROCESS) == 0)
    return cpus;
  cpu_set_t mask;
  hwloc_bitmap_zero(cpus.get());
  if (sched_getaffinity(0, sizeof mask, &mask) != 0) return cpus;
  for (unsigned cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &mask)) hwloc_bitmap_set(cpus.get(), cpu);
  return cpus;
}

int package_of(hwloc_topology_t t, hwloc_obj_t node) {
  int n = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_PACKAGE);
  for (int i = 0; i < n; ++i) {
    const hwloc_obj_t package =
        hwloc_get_obj_by_type(t, HWLOC_OBJ_PACKAGE, static_cast<unsigned>(i));
    if (hwloc_bitmap_intersects(package->cpuset, node->cpuset) != 0) return i;
  }
  return -1;
}

std::vector<unsigned> numbers(hwloc_const_bitmap_t set) {
  std::vector<unsigned> list;
  for (int i = hwloc_bitmap_first(set); i >= 0; i = hwloc_bitmap_next(set, i))
    list.push_back(static_cast<unsigned>(i));
  return list;
}

void read_nodes(hwloc_topology_t t, Snapshot& out) {
  const int n = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_NUMANODE);
  for (int i = 0; i < n; ++i) {
    const hwloc_obj_t node = hwloc_get_obj_by_type(t, HWLOC_OBJ_NUMANODE, static_cast<unsigned>(i));
    out.nodes.push_back(NumaNode{static_cast<int>(node->os_index), package_of(t, node),
                                 numbers(node->cpuset), node->attr->numanode.local_memory,
                                 node->subtype != nullptr ? node->subtype : ""});
  }
}

// Where hwloc knows no cores (some virtual machines), every CPU is one.
void read_cores(hwloc_topology_t t, Snapshot& out) {
  hwloc_obj_type_t type = HWLOC_OBJ_CORE;
  if (hwloc_get_nbobjs_by_type(t, type) <= 0) type = HWLOC_OBJ_PU;
  for (hwloc_obj_t core = hwloc_get_obj_by_type(t, type, 0); core != nullptr;
       core = core->next_cousin)
    out.cores.push_back(numbers(core->cpuset));
}

// The firmware's node distances (SLIT), if they cover all nodes.
void read_latency(hwloc_topology_t t, Snapshot& out) {
  unsigned count = 1;
  hwloc_distances_s* d = nullptr;
  const unsigned long kind = HWLOC_DISTANCES_KIND_MEANS_LATENCY;
  if (hwloc_distances_get_by_type(t, HWLOC_OBJ_NUMANODE, &count, &d, kind, 0) != 0 || count == 0)
    return;
  const unsigned n = d->nbobjs;
  if (n == out.nodes.size()) {
    out.latency.assign(n, std::vector<double>(n, 0));
    for (unsigned i = 0; i < n; ++i)
      for (unsigned j = 0; j < n; ++j)
        out.latency[d->objs[i]->logical_index][d->objs[j]->logical_index] =
            static_cast<double>(d->values[i * n + j]);
  }
  hwloc_distances_release(t, d);
}

// Where there is no SLIT: the latencies of the firmware's memory attributes (HMAT), if they cover
// all nodes.
void read_memory_latency(hwloc_topology_t t, Snapshot& out) {
  const std::size_t n = out.nodes.size();
  std::vector<std::vector<double>> latency(n, std::vector<double>(n, 0));
  for (unsigned from = 0; from < n; ++from) {
    for (unsigned to = 0; to < n; ++to) {
      hwloc_location initiator{};
      initiator.type = HWLOC_LOCATION_TYPE_CPUSET;
      initiator.location.cpuset = hwloc_get_obj_by_type(t, HWLOC_OBJ_NUMANODE, from)->cpuset;
      hwloc_uint64_t value = 0;
      if (hwloc_memattr_get_value(t, HWLOC_MEMATTR_ID_LATENCY,
                                  hwloc_get_obj_by_type(t, HWLOC_OBJ_NUMANODE, to), &initiator, 0,
                                  &value) != 0)
        return;
      latency[from][to] = static_cast<double>(value);
    }
  }
  out.latency = std::move(latency);
}

// Null where the device is on no PCI bus, or nothing is known of it.
hwloc_obj_t pci_of(hwloc_obj_t device) {
  hwloc_obj_t pci = device->parent;
  while (pci != nullptr && pci->type == HWLOC_OBJ_OS_DEVICE) pci = pci->parent;
  return pci != nullptr && pci->type == HWLOC_OBJ_PCI_DEVICE ? pci : nullptr;
}

std::string pci_address(hwloc_obj_t device) {
  const hwloc_obj_t pci = pci_of(device);
  if (pci == nullptr) return {};
  const auto& a = pci->attr->pcidev;
  char text[32];
  (void)snprintf(text, sizeof text, "%04x:%02x:%02x.%01x", static_cast<unsigned>(a.domain),
                 unsigned{a.bus}, unsigned{a.dev}, unsigned{a.func});
  return text;
}

// A device below the whole machine has no locality worth the name (virtual machines, KNL, soft
// devices).
std::vector<NodeIndex> nodes_of(hwloc_topology_t t, hwloc_obj_t device, std::size_t all) {
  std::vector<NodeIndex> nodes;
  const hwloc_obj_t place = hwloc_get_non_io_ancestor_obj(t, device);
  if (place == nullptr || place->nodeset == nullptr) return nodes;
  for (std::size_t i = 0; i < all; ++i) {
    const hwloc_obj_t node = hwloc_get_obj_by_type(t, HWLOC_OBJ_NUMANODE, static_cast<unsigned>(i));
    if (hwloc_bitmap_isset(place->nodeset, node->os_index) != 0)
      nodes.push_back(static_cast<NodeIndex>(i));
  }
  if (nodes.size() == all) nodes.clear();
  return nodes;
}

double pci_gbps(hwloc_obj_t device) {
  const hwloc_obj_t pci = pci_of(device);
  constexpr double kBitsPerByte = 8;  // hwloc counts gigabytes
  return pci == nullptr ? 0 : kBitsPerByte * static_cast<double>(pci->attr->pcidev.linkspeed);
}

const char* port_state_name(int code) {
  constexpr const char* kNames[] = {"NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"};
  return code >= 0 && code < static_cast<int>(std::size(kNames)) ? kNames[code] : "unknown";
}

std::vector<PortPlace> ports_of(hwloc_obj_t device) {
  std::vector<PortPlace> ports;
  constexpr int kMostPorts = 16;
  for (int number = 1; number <= kMostPorts; ++number) {
    const char* state =
        hwloc_obj_get_info_by_name(device, ("Port" + std::to_string(number) + "State").c_str());
    if (state == nullptr) break;
    ports.push_back(PortPlace{number, port_state_name(std::atoi(state))});
  }
  return ports;
}

void read_devices(hwloc_topology_t t, Snapshot& out) {
  hwloc_obj_t device = nullptr;
  while ((device = hwloc_get_next_osdev(t, device)) != nullptr) {
    if (device->attr->osdev.type != HWLOC_OBJ_OSDEV_OPENFABRICS || device->name == nullptr)
      continue;
    out.devices.push_back(DevicePlace{device->name, pci_address(device),
                                      nodes_of(t, device, out.nodes.size()), pci_gbps(device),
                                      ports_of(device)});
  }
}

}  // namespace

const DevicePlace* Snapshot::find(const std::string& device) const {
  for (const DevicePlace& place : devices)
    if (place.name == device) return &place;
  return nullptr;
}

int Snapshot::numa_node_of(const std::string& device) const {
  const DevicePlace* place = find(device);
  if (place == nullptr || place->nodes.size() != 1) return -1;
  return nodes[place->nodes.front()].os_index;
}

namespace {

bool is_part_of(const std::vector<unsigned>& part, const std::vector<unsigned>& whole) {
  return part.size() < whole.size() &&
         std::includes(whole.begin(), whole.end(), part.begin(), part.end());
}

}  // namespace

// Memory that belongs to no CPU in particular (of a GPU, of an expander) is given all CPUs around
// it by hwloc, and is nobody's place.
Binding Snapshot::nodes_of(std::span<const unsigned> cpus) const {
  Binding binding;
  for (NodeIndex i = 0; i < nodes.size(); ++i) {
    const auto& own = nodes[i].cpus;
    if (std::any_of(cpus.begin(), cpus.end(),
                    [&](unsigned cpu) { return std::binary_search(own.begin(), own.end(), cpu); }))
      binding.push_back(i);
  }
  Binding places;
  for (const NodeIndex i : binding)
    if (std::none_of(binding.begin(), binding.end(),
                     [&](NodeIndex j) { return is_part_of(nodes[j].cpus, nodes[i].cpus); }))
      places.push_back(i);
  return places;
}

void Snapshot::add_device(const std::string& device, int numa_os_index) {
  DevicePlace place;
  place.name = device;
  for (NodeIndex i = 0; i < nodes.size(); ++i)
    if (nodes[i].os_index == numa_os_index) place.nodes.push_back(i);
  devices.push_back(std::move(place));
}

Result<Snapshot> load(const Source& source) {
  Result<Topology> topology = open_topology(source);
  if (!topology) return tl::unexpected(topology.error());
  const hwloc_topology_t t = topology->get();
  Snapshot snapshot;
  read_nodes(t, snapshot);
  read_cores(t, snapshot);
  read_latency(t, snapshot);
  if (snapshot.latency.empty()) read_memory_latency(t, snapshot);
  read_devices(t, snapshot);
  const auto cpus = process_cpus(t, source);
  if (!cpus) return tl::unexpected(cpus.error());
  hwloc_bitmap_and(cpus->get(), cpus->get(), hwloc_topology_get_complete_cpuset(t));
  snapshot.process = snapshot.nodes_of(numbers(cpus->get()));
  return snapshot;
}

Result<Snapshot> load_untrusted(const Source& source) {
  constexpr int kLoads = 10, kRefused = 11;  // nothing that ends a process by itself says this
  const pid_t child = fork();
  if (child == 0) _exit(load(source).has_value() ? kLoads : kRefused);
  int status = 0;
  const bool ended = child > 0 && waitpid(child, &status, 0) == child;
  const int code = ended && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (ended && code != kLoads && code != kRefused)
    return fail(EINVAL, "topology",
                "hwloc cannot read " + (source.xml.empty() ? "this topology" : source.xml) +
                    ": the file is damaged");
  return load(source);
}

Result<std::vector<unsigned>> parse_cpu_list(const std::string& text) {
  const auto set = read_cpu_list(text);
  if (!set) return tl::unexpected(set.error());
  if (hwloc_bitmap_weight(set->get()) <= 0) return no_cpu_list(text);  // empty, or without end
  return numbers(set->get());
}

}  // namespace mend::topo
