# shellcheck shell=bash
# Configure and build with the presets. Needs say.sh, and mend_root: the root of the checkout.
: "${mend_root:?}"

build_configure() { # PRESET
  # ccache is found through the environment, so that the build directory can be used with and without it.
  if command -v ccache >/dev/null; then
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
