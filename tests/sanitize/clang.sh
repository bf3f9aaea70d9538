#!/usr/bin/env bash
# Builds everything with clang 14.   clang.sh   (from the root of the checkout)
set -euo pipefail
if command -v ccache >/dev/null; then
  export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache
fi
CC=clang-14 CXX=clang++-14 cmake -S . -B build/clang -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo
exec cmake --build build/clang --parallel 2
