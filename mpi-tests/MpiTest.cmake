# mend_mpi_test(NAME PROGRAM np ... ): one run of a program through run_mpi.py as a test.
#   VARIANT name      what differs from the default run (see mend_variant)
#   LABELS ...        besides mpi
#   ARGS ...          arguments of the program
#   OPTIONS ...       further options of run_mpi.py
#   TIMEOUT seconds   of the job; the test gets a minute more, so that the runner can clean up
# MPI jobs poll: two at a time on few cores would only wait for each other.
set(mend_run_mpi ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_SOURCE_DIR}/run_mpi.py --build ${PROJECT_BINARY_DIR})

# The variants: options of run_mpi.py that each adds.
set(variant_default)
set(variant_leave_pinned_0 --mca mpi_leave_pinned 0)
set(variant_leave_pinned_1 --mca mpi_leave_pinned 1)
set(variant_no_inline --mca btl_mend_max_inline 0)
set(variant_plain_device --env SOFTHCA_CONF=${CMAKE_CURRENT_SOURCE_DIR}/conf/plain-device.conf)
set(variant_tiny_srq --mca btl_mend_srq_depth 4 --may-warn)
set(variant_two_rails --env SOFTHCA_CONF=${CMAKE_CURRENT_SOURCE_DIR}/conf/two-rails.conf --rails 2)
set(mend_variants default leave_pinned_0 leave_pinned_1 no_inline plain_device tiny_srq two_rails)

function(mend_mpi_test program np)
  cmake_parse_arguments(arg "" "VARIANT;TIMEOUT;SUFFIX" "LABELS;ARGS;OPTIONS" ${ARGN})
  if(NOT arg_VARIANT)
    set(arg_VARIANT default)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 60)
  endif()
  math(EXPR test_timeout "${arg_TIMEOUT} + 60")
  string(JOIN "." name mpi ${program}${arg_SUFFIX} np${np} ${arg_VARIANT})
  if("full" IN_LIST arg_LABELS)
    string(APPEND name ".full")
  endif()
  add_test(NAME ${name}
    COMMAND ${mend_run_mpi} --np ${np} --program ${program} --timeout ${arg_TIMEOUT}
            ${variant_${arg_VARIANT}} ${arg_OPTIONS} -- ${arg_ARGS})
  set_tests_properties(${name} PROPERTIES LABELS "mpi;${arg_LABELS}" TIMEOUT ${test_timeout} RESOURCE_LOCK mpi
    PROCESSORS 2 SKIP_RETURN_CODE 77)
endfunction()
