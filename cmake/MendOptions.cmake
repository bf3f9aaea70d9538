# Language level, warnings, sanitizers and visibility that every target of mend shares (link mend::options).
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)

set(MEND_SANITIZE "" CACHE STRING "Sanitizers, comma separated, e.g. address,undefined or thread")

add_library(mend_options INTERFACE)
add_library(mend::options ALIAS mend_options)
target_compile_options(mend_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror>
  $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Werror>
  $<$<STREQUAL:${CMAKE_SYSTEM_PROCESSOR},x86_64>:-mcx16>
  # verbs.h and Open MPI's headers define macros with statement expressions; clang blames the file that uses them.
  $<$<CXX_COMPILER_ID:Clang>:$<$<COMPILE_LANGUAGE:CXX>:-Wno-gnu-statement-expression>>
  -fno-strict-aliasing
  $<$<CXX_COMPILER_ID:GNU>:$<$<COMPILE_LANGUAGE:CXX>:-fno-gnu-unique>>)
target_include_directories(mend_options INTERFACE ${PROJECT_SOURCE_DIR})
if(MEND_SANITIZE)
  target_compile_options(mend_options INTERFACE -fsanitize=${MEND_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(mend_options INTERFACE -fsanitize=${MEND_SANITIZE})
  if(MEND_SANITIZE STREQUAL "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # TSan does not understand fences, so g++ warns of each: softhca's shared memory needs them.
    target_compile_options(mend_options INTERFACE -Wno-tsan)
  endif()
endif()
