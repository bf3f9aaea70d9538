// Errno values by their symbolic names, for fault schedules and messages. Pure.
#pragma once

#include <array>
#include <cerrno>
#include <charconv>
#include <string_view>
#include <utility>

namespace softhca {

inline constexpr std::array<std::pair<std::string_view, int>, 16> kErrnoNames{
    {{"ENOMEM", ENOMEM},
     {"EINVAL", EINVAL},
     {"EAGAIN", EAGAIN},
     {"EBUSY", EBUSY},
     {"EIO", EIO},
     {"EPERM", EPERM},
     {"EACCES", EACCES},
     {"EFAULT", EFAULT},
     {"ENOSPC", ENOSPC},
     {"ENODEV", ENODEV},
     {"EMFILE", EMFILE},
     {"ENFILE", ENFILE},
     {"EINTR", EINTR},
     {"ENOSYS", ENOSYS},
     {"EOPNOTSUPP", EOPNOTSUPP},
     {"ETIMEDOUT", ETIMEDOUT}}};

// A name of the table or a number from 1 to 4095; 0 if it is neither.
inline int errno_from_name(std::string_view name) noexcept {
  for (const auto& [known, value] : kErrnoNames)
    if (known == name) return value;
  int value = 0;
  const auto [end, ec] = std::from_chars(name.data(), name.data() + name.size(), value);
  const bool whole = ec == std::errc{} && end == name.data() + name.size();
  return whole && value >= 1 && value <= 4095 ? value : 0;
}

}  // namespace softhca
