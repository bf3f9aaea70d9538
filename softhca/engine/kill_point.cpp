#include "softhca/engine/kill_point.h"

#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace softhca {

namespace {

constexpr std::array kNames = {
#define SOFTHCA_KILL_NAME(name) #name,
    SOFTHCA_KILL_POINTS(SOFTHCA_KILL_NAME)
#undef SOFTHCA_KILL_NAME
};

std::atomic<long> passages_left{1};
std::atomic<bool> stops{false};

}  // namespace

namespace detail {

std::atomic<int> armed_kill_point{-1};

void kill_point_passed() noexcept {
  const long left = passages_left.fetch_sub(1);
  if (stops) {
    if (left <= 1) (void)std::raise(SIGSTOP);  // the thread that is here goes no further
  } else if (left == 1) {
    ::kill(::getpid(), SIGKILL);
  }
}

}  // namespace detail

std::span<const char* const> kill_point_names() noexcept { return kNames; }

bool arm_kill_points_from_env() noexcept {
  const char* text = std::getenv("SOFTHCA_KILL");
  if (text == nullptr || *text == '\0') return true;
  std::string_view spec{text};
  const auto colon = spec.find(':');
  const std::string_view name = spec.substr(0, colon);
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (name != kNames[i]) continue;
    passages_left = colon == std::string_view::npos ? 1 : std::atol(text + colon + 1);
    stops = spec.ends_with(":stop");
    detail::armed_kill_point = static_cast<int>(i);
    return true;
  }
  std::fprintf(stderr, "softhca: SOFTHCA_KILL names no kill point: %s\n", text);
  return false;
}

}  // namespace softhca
