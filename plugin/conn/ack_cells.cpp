#include "plugin/conn/ack_cells.h"

namespace mend::conn {

AckCells::~AckCells() {
  for (Chunk& chunk : chunks_) registry_.remove(chunk.region);
}

Result<AckCells::Cell> AckCells::take() {
  if (used_ == kCellsPerChunk) {
    Chunk chunk;
    chunk.cells = std::make_unique<ops::AckCell[]>(kCellsPerChunk);
    if (auto added = registry_.add(chunk.cells.get(), kCellsPerChunk * sizeof(ops::AckCell),
                                   kLocalWrite | kRemoteWrite, chunk.region);
        !added)
      return tl::unexpected(added.error());
    chunks_.push_back(std::move(chunk));
    used_ = 0;
  }
  Chunk& last = chunks_.back();
  return Cell{&last.cells[used_++], &last.region};
}

}  // namespace mend::conn
