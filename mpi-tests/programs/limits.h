// The sizes at which the transport changes its way of moving a message (inline, eager, pipeline,
// ...), read from the running component through MPI_T so that the tests stay on the edges when
// defaults move. Falls back to the usual BTL sizes for a component that lacks a variable. Call
// after MPI_Init, from one thread.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace mpitest {

// Value of an integer control variable, or `fallback` where there is none.
inline std::size_t control_variable(const std::string& name, std::size_t fallback) {
  int index = -1;
  if (MPI_T_cvar_get_index(name.c_str(), &index) != MPI_SUCCESS) return fallback;
  MPI_Datatype type = MPI_DATATYPE_NULL;
  char text[256];
  int text_len = sizeof text;
  int verbosity = 0;
  int bind = 0;
  int scope = 0;
  if (MPI_T_cvar_get_info(index, text, &text_len, &verbosity, &type, nullptr, nullptr, nullptr,
                          &bind, &scope) != MPI_SUCCESS)
    return fallback;
  MPI_T_cvar_handle handle = nullptr;
  int count = 0;
  if (MPI_T_cvar_handle_alloc(index, nullptr, &handle, &count) != MPI_SUCCESS) return fallback;
  int bytes = 0;
  MPI_Type_size(type, &bytes);
  long long wide = 0;
  int narrow = 0;
  void* target = bytes == 8 ? static_cast<void*>(&wide) : static_cast<void*>(&narrow);
  const bool ok = count == 1 && MPI_T_cvar_read(handle, target) == MPI_SUCCESS;
  MPI_T_cvar_handle_free(&handle);
  if (!ok) return fallback;
  const long long value = bytes == 8 ? wide : narrow;
  return value < 0 ? fallback : static_cast<std::size_t>(value);
}

// Message sizes on both sides of every edge of `btl`, headers taken into account, none above `top`.
inline std::vector<std::size_t> edge_sizes(const std::string& btl, std::size_t top) {
  int provided = 0;
  MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
  struct Edge {
    const char* name;
    std::size_t fallback;
  };
  constexpr Edge kEdges[] = {{"_max_inline", 128},
                             {"_eager_limit", 4096},
                             {"_rndv_eager_limit", 4096},
                             {"_max_send_size", 32768},
                             {"_rdma_pipeline_send_length", 32768},
                             {"_rdma_pipeline_frag_size", 1 << 20},
                             {"_min_rdma_pipeline_size", 256 << 10}};
  // ob1's headers are 14 to 80 bytes, mend's own is 16: an edge may show at any of these distances.
  constexpr std::size_t kHeaders[] = {0, 14, 16, 30, 32, 48};
  std::vector<std::size_t> sizes;
  for (const Edge& edge : kEdges) {
    const std::size_t value = control_variable("btl_" + btl + edge.name, edge.fallback);
    for (const std::size_t header : kHeaders)
      for (const std::size_t delta : {0U, 1U, 2U})
        if (value + 1 >= header + delta) sizes.push_back(value + 1 - header - delta);
    sizes.push_back(2 * value + 1);
  }
  MPI_T_finalize();
  std::erase_if(sizes, [top](std::size_t s) { return s > top; });
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

}  // namespace mpitest
