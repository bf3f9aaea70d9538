// When a program ends that goes on until told to, and when it is under way: options of its command
// line, and the clock.
// Thread contract: belongs to main().
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>

#include "mpi-tests/programs/check.h"

namespace mpitest {

inline std::string text_option(const Session& s, std::string_view name) {
  for (std::size_t i = 0; i + 1 < s.args.size(); ++i)
    if (s.args[i] == name) return s.args[i + 1];
  return {};
}

inline int option(const Session& s, std::string_view name, int otherwise) {
  const std::string text = text_option(s, name);
  return text.empty() ? otherwise : std::atoi(text.c_str());
}

inline bool flag(const Session& s, std::string_view name) {
  return std::find(s.args.begin(), s.args.end(), name) != s.args.end();
}

// For whoever breaks something under a job: from this line on it hits traffic, not MPI_Init. To be
// called after each round in which rank 0 has heard from every other rank; that needs no barrier,
// and a rank 0 that only receives must not send one.
inline void tell_under_way(const Session& s, std::uint64_t round) {
  constexpr std::uint64_t kFirstRounds = 20;
  if (s.rank != 0 || round + 1 != kFirstRounds) return;
  std::printf("under way\n");
  std::fflush(stdout);
}

// Over after so many seconds, or a second after the file has appeared. Asks for the file now and
// then, not in every round.
class Curfew {
 public:
  Curfew(int seconds, std::string file) : end_(MPI_Wtime() + seconds), file_(std::move(file)) {}
  bool over() {
    const double now = MPI_Wtime();
    if (!file_.empty() && now >= next_look_) {
      next_look_ = now + 0.2;
      if (std::filesystem::exists(file_)) {
        end_ = std::min(end_, now + 1.0);
        file_.clear();
      }
    }
    return now >= end_;
  }

 private:
  double end_;
  double next_look_ = 0;
  std::string file_;
};

}  // namespace mpitest
