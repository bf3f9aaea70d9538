#!/usr/bin/env bash
# Builds and runs the unit tests of one sanitizer preset.   run.sh PRESET LABEL   (from the root of the checkout)
set -euo pipefail
preset=$1
label=$2
if command -v ccache >/dev/null; then
  export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache
fi

# Reports stop the test that caused them. Objects of other libraries that live for the whole process are no leaks of ours.
export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_init_order=1
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1

cmake --preset "$preset"
cmake --build --preset "$preset" --target mend_unit_tests --parallel 2
exec ctest --preset "$preset" --label-regex "$label" --no-tests=error --parallel 2
