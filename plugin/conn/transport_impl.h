// What a Transport is made of, in creation order (destroyed from the last to the first).
// Thread contract: that of its parts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ops/frag_pool.h"
#include "plugin/conn/chunk_memory.h"
#include "plugin/conn/control_plane.h"
#include "plugin/conn/device_choice.h"
#include "plugin/conn/memory_registry.h"
#include "plugin/conn/rail_unit.h"
#include "plugin/conn/stats.h"
#include "plugin/conn/transport.h"

namespace mend::conn {

struct Transport::Impl {
  Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl();

  Stats collect() const;
  std::string leftovers() const;  // by name; empty at the end of an orderly run

  Params params;
  Identity self;
  Devices devices;
  std::vector<RailUnit> rails;
  std::vector<RailInfo> rail_infos;
  std::unique_ptr<MemoryRegistry> registry;
  std::unique_ptr<ChunkMemory> chunks;
  std::unique_ptr<ops::FragPool> small, large;
  std::unique_ptr<ControlPlane> plane;
};

}  // namespace mend::conn
