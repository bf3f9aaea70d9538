#!/usr/bin/env bash
# Builds and runs the unit tests of some parts with one sanitizer preset.   run.sh PRESET PART...   (from the checkout's root)
set -euo pipefail
preset=$1
shift
if command -v ccache >/dev/null; then
  export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache
fi

# A report ends the test that caused it.
export ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1:strict_init_order=1
export LSAN_OPTIONS=suppressions=$PWD/tests/sanitize/lsan.supp:print_suppressions=0
# hwloc unloads its plugins, and what they leak has no name then.
export HWLOC_PLUGINS_PATH=/nonexistent
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:suppressions=$PWD/tests/sanitize/tsan.supp
# Loading ucs patches madvise() in libc, which the thread sanitizer does not survive at thread exit.
export UCX_MEM_MMAP_HOOK_MODE=none

# Of a build that works nobody wants to read; a test's own words are what counts.
build() {
  cmake --preset "$preset" && cmake --build --preset "$preset" --parallel 2 --target "${@/#/mend_unit_}"
}
mkdir -p build/logs
build "$@" >"build/logs/sanitize-$preset.log" 2>&1 || {
  tail -n 60 "build/logs/sanitize-$preset.log"
  exit 1
}
status=0
for part in "$@"; do
  ctest --test-dir "build/$preset/tests/unit/$part" --no-tests=error --label-exclude full --output-on-failure --parallel 2 || status=1
done
exit $status
