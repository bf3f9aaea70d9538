// A property that must hold for every input; unlike assert() it is never compiled out.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace mend::fuzz {

inline void check(bool holds, const char* what) {
  if (holds) return;
  (void)fprintf(stderr, "property violated: %s\n", what);
  abort();
}

}  // namespace mend::fuzz
