# shellcheck shell=bash
# Configure and build with the presets. Needs say.sh, and mend_root: the root of the checkout.
: "${mend_root:?}"

build_configure() { # PRESET
  # Only a new build directory gets ccache, and keeps it: a compiler launcher that comes later rebuilds everything.
  if [ ! -e "$mend_root/build/$1/CMakeCache.txt" ] && command -v ccache >/dev/null; then
    export CMAKE_C_COMPILER_LAUNCHER=${CMAKE_C_COMPILER_LAUNCHER-ccache}
    export CMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER-ccache}
  fi
  (cd "$mend_root" && say_run "build/logs/configure-$1.log" cmake --preset "$1")
}

build_targets() { # PRESET [TARGET...]; without a target, everything
  local preset=$1
  shift
  (cd "$mend_root" && say_run "build/logs/build-$preset.log" cmake --build --preset "$preset" ${1+--target "$@"})
}
