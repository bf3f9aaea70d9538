#include "topo/snapshot.h"

#include <hwloc.h>
#include <sched.h>

#include <cerrno>
#include <cstring>
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

// Only what the ranking needs: caches, cores and groups would just cost time.
void keep_what_matters(hwloc_topology_t t) {
  hwloc_topology_set_all_types_filter(t, HWLOC_TYPE_FILTER_KEEP_NONE);
  hwloc_topology_set_type_filter(t, HWLOC_OBJ_PACKAGE, HWLOC_TYPE_FILTER_KEEP_ALL);
  hwloc_topology_set_type_filter(t, HWLOC_OBJ_OS_DEVICE, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  hwloc_topology_set_type_filter(t, HWLOC_OBJ_PCI_DEVICE, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
}

Result<Topology> open_topology(const Source& source) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return hwloc_error("hwloc_topology_init", "");
  Topology t(raw);
  if (!source.xml.empty() && hwloc_topology_set_xml(raw, source.xml.c_str()) != 0)
    return hwloc_error("hwloc_topology_set_xml", source.xml);
  skip_slow_discovery(raw);
  keep_what_matters(raw);
  if (hwloc_topology_load(raw) != 0) return hwloc_error("hwloc_topology_load", source.xml);
  return t;
}

// Where the process may run, in the numbering of the topology. A topology from a file is taken to
// describe this node if its CPU numbers fit, which is what launchers that hand out HWLOC_XMLFILE
// mean.
Bitmap process_cpus(hwloc_topology_t t, const Source& source) {
  Bitmap cpus(hwloc_bitmap_alloc());
  if (!source.binding.empty()) {
    if (hwloc_bitmap_list_sscanf(cpus.get(), source.binding.c_str()) == 0) return cpus;
    hwloc_bitmap_zero(cpus.get());
    return cpus;
  }
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

void read_nodes(hwloc_topology_t t, const Bitmap& cpus, Snapshot& out) {
  const int n = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_NUMANODE);
  for (int i = 0; i < n; ++i) {
    const hwloc_obj_t node = hwloc_get_obj_by_type(t, HWLOC_OBJ_NUMANODE, static_cast<unsigned>(i));
    out.nodes.push_back(NumaNode{static_cast<int>(node->os_index), package_of(t, node)});
    if (hwloc_bitmap_intersects(node->cpuset, cpus.get()) != 0)
      out.process.push_back(static_cast<NodeIndex>(i));
  }
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

std::string pci_address(hwloc_obj_t device) {
  hwloc_obj_t pci = device->parent;
  while (pci != nullptr && pci->type == HWLOC_OBJ_OS_DEVICE) pci = pci->parent;
  if (pci == nullptr || pci->type != HWLOC_OBJ_PCI_DEVICE) return {};
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

void read_devices(hwloc_topology_t t, Snapshot& out) {
  hwloc_obj_t device = nullptr;
  while ((device = hwloc_get_next_osdev(t, device)) != nullptr) {
    if (device->attr->osdev.type != HWLOC_OBJ_OSDEV_OPENFABRICS || device->name == nullptr)
      continue;
    out.devices.push_back(
        DevicePlace{device->name, pci_address(device), nodes_of(t, device, out.nodes.size())});
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

Result<Snapshot> load(const Source& source) {
  Result<Topology> topology = open_topology(source);
  if (!topology) return tl::unexpected(topology.error());
  Snapshot snapshot;
  read_nodes(topology->get(), process_cpus(topology->get(), source), snapshot);
  read_latency(topology->get(), snapshot);
  read_devices(topology->get(), snapshot);
  return snapshot;
}

}  // namespace mend::topo
