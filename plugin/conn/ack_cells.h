// AckCells: the memory peers write their acknowledgements into: many cells in one registered chunk,
// so that a peer costs no memory region of its own.
//
// Thread contract: take() from set-up code, one thread at a time. A cell lives as long as this
// object, which outlives every QP. Invariant: a cell is handed out once.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>

#include "ops/channel.h"
#include "plugin/conn/memory_registry.h"

namespace mend::conn {

class AckCells {
 public:
  explicit AckCells(MemoryRegistry& registry) : registry_(registry) {}
  ~AckCells();
  AckCells(const AckCells&) = delete;
  AckCells& operator=(const AckCells&) = delete;

  struct Cell {
    ops::AckCell* cell = nullptr;
    const Region* region = nullptr;  // keys of the chunk the cell lies in
  };
  Result<Cell> take();

 private:
  static constexpr std::size_t kCellsPerChunk = 64;  // one page
  struct Chunk {
    std::unique_ptr<ops::AckCell[]> cells;
    Region region;
  };
  MemoryRegistry& registry_;
  std::deque<Chunk> chunks_;  // stable addresses
  std::size_t used_ = kCellsPerChunk;
};

}  // namespace mend::conn
