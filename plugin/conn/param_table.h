// What each parameter is called, may be and means: one table, from which plugin/mca registers the
// MCA variables btl_mend_<name> and tools print them. Pure data.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "plugin/conn/params.h"

namespace mend::conn {

// A whole number with a legal range and, where `special_meaning` is set, one more legal value
// outside of it. level: 1 (every user) to 9 (developers), as in Open MPI.
struct IntParam {
  const char* name;
  int Params::*field;
  int low, high;
  const char* unit;
  const char* help;
  int level;
  int special = 0;
  const char* special_meaning = nullptr;

  bool legal(int value) const;
  std::string range() const;  // "0 to 31 (code), or -1 (what the device supports)"
};
std::span<const IntParam> int_params();

struct TextParam {
  const char* name;
  std::string Params::*field;
  const char* help;
  int level;
  const char* words = nullptr;  // the legal values, "near, spread or none"; null: any text

  bool legal(const std::string& value) const;
};
std::span<const TextParam> text_params();

struct FlagParam {
  const char* name;
  bool Params::*field;
  const char* help;
  int level;
};
std::span<const FlagParam> flag_params();

struct SizeParam {
  const char* name;
  std::uint64_t Params::*field;
  const char* help;
  int level;
};
std::span<const SizeParam> size_params();  // bytes

// The first value that is not legal, by itself or beside the others.
struct IllegalParam {
  std::string name;  // without btl_mend_
  std::string value;
  std::string legal;  // what would be
};
std::optional<IllegalParam> first_illegal(const Params& params);

}  // namespace mend::conn
