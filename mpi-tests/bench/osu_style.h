// What the benchmark programs share: options, the size loop, timing and the OSU suite's output
// format (our own programs; the format lets readers and scripts compare with the real suite, which
// is not needed). Thread contract: single-threaded programs of two ranks or more; only ranks 0 and
// 1 (or pairs) move data.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

namespace bench {

struct Options {
  std::size_t smallest = 0;
  std::size_t largest = std::size_t{4} << 20U;
  int iterations = 0;  // 0: as many as fill a fixed time
  int window = 64;
  bool median = false;
  std::vector<std::size_t> list;  // exactly these sizes, if not empty
};

inline std::vector<std::size_t> parse_list(const char* text) {
  std::vector<std::size_t> all;
  for (char* end = nullptr;; text = end + 1) {
    all.push_back(std::strtoull(text, &end, 10));
    if (*end != ',') return all;
  }
}

// -m MIN:MAX (or MAX), -i ITERATIONS, -W WINDOW, -z P50 (a column of medians), as in the OSU suite;
// -l SIZE,SIZE,... is ours.
inline Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view flag = argv[i];
    const char* value = argv[i + 1];
    if (flag == "-m") {
      const char* colon = std::strchr(value, ':');
      if (colon != nullptr) o.smallest = std::strtoull(value, nullptr, 10);
      o.largest = std::strtoull(colon == nullptr ? value : colon + 1, nullptr, 10);
    } else if (flag == "-l") {
      o.list = parse_list(value);
      o.largest = *std::max_element(o.list.begin(), o.list.end());
    } else if (flag == "-i") {
      o.iterations = std::atoi(value);
    } else if (flag == "-W") {
      o.window = std::atoi(value);
    } else if (flag == "-z") {
      o.median = std::string_view(value) == "P50";
    }
  }
  return o;
}

// 0, 1, 2, 4, ... within the options' bounds.
inline std::vector<std::size_t> sizes(const Options& o, std::size_t first) {
  if (!o.list.empty()) return o.list;
  std::vector<std::size_t> all;
  if (first == 0 && o.smallest == 0) all.push_back(0);
  for (std::size_t s = 1; s <= o.largest; s *= 2)
    if (s >= o.smallest) all.push_back(s);
  return all;
}

// Seconds for one repetition: runs `run(count)`, which returns the seconds it took, in growing
// portions until about 60 ms have passed or the options' number is reached. Collective: rank 0
// decides for all after each portion, so that a machine that turns slow in between costs a portion
// and not minutes.
template <typename Run>
double seconds_per_repetition(const Options& o, Run run) {
  constexpr int kFirst = 20;
  constexpr double kTime = 0.06;
  run(kFirst);  // connects, fills caches
  double seconds = 0;
  double done = 0;
  for (int count = o.iterations > 0 ? o.iterations : kFirst; count > 0;) {
    const double took = run(count);
    seconds += took;
    done += count;
    const bool enough = o.iterations > 0 || seconds >= kTime;
    int next = took < kTime / 6 ? 2 * count : count;
    if (took > kTime / 3) next = std::max(1, count / 4);
    if (enough) next = 0;
    MPI_Bcast(&next, 1, MPI_INT, 0, MPI_COMM_WORLD);
    count = next;
  }
  return seconds / done;
}

// Page-aligned like the OSU suite's; filled so that no page is the shared zero page.
class Buffer {
 public:
  explicit Buffer(std::size_t size) : data_(std::aligned_alloc(4096, (size / 4096 + 1) * 4096)) {
    if (data_ == nullptr) MPI_Abort(MPI_COMM_WORLD, 1);
    std::memset(data_, 'a', (size / 4096 + 1) * 4096);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { std::free(data_); }
  void* get() const { return data_; }

 private:
  void* data_;
};

}  // namespace bench
