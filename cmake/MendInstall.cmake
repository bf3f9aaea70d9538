# What `cmake --install` puts where.
#
#   cmake --install build/release                  the component into Open MPI's own directory (as ompi_info names it),
#                                                  everything else under /usr/local
#   cmake --install build/release --prefix PREFIX  everything under PREFIX, the component in PREFIX/lib/openmpi
#
# Which of the two is known only when the installation runs, so install_component.cmake.in decides then.
# -DMEND_COMPONENT_DIR=DIR at configure time overrules both. The device and the tools are installed by their own lists.
set(MEND_COMPONENT_DIR "" CACHE PATH "Directory for mca_btl_mend.so; empty: Open MPI's own, or PREFIX/lib/openmpi")

find_program(MEND_OMPI_INFO ompi_info)
set(mend_system_component_dir "")
if(MEND_OMPI_INFO)
  execute_process(COMMAND ${MEND_OMPI_INFO} --parsable --path pkglibdir
    OUTPUT_VARIABLE ompi_path OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(ompi_path MATCHES "path:pkglibdir:([^\n]+)")
    set(mend_system_component_dir ${CMAKE_MATCH_1})
  endif()
endif()

if(TARGET mca_btl_mend)
  set(mend_component_help ${PROJECT_SOURCE_DIR}/plugin/mca/help-mpi-btl-mend.txt)
  configure_file(${CMAKE_CURRENT_LIST_DIR}/install_component.cmake.in ${PROJECT_BINARY_DIR}/install_component.cmake.in @ONLY)
  file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/install_component.cmake
    INPUT ${PROJECT_BINARY_DIR}/install_component.cmake.in)
  install(SCRIPT ${PROJECT_BINARY_DIR}/install_component.cmake)
endif()
set(site_files ${PROJECT_SOURCE_DIR}/configure-scripts)
set(site_params ${site_files}/mend-mca-params.conf)
if(PMIX_FOUND) # plugin/mca asks for PMIx where Open MPI is 5.0 or later, whose shared memory is called sm
  file(READ ${site_params} text)
  string(REPLACE "vader" "sm" text "${text}")
  set(site_params ${PROJECT_BINARY_DIR}/mend-mca-params.conf)
  file(CONFIGURE OUTPUT ${site_params} CONTENT "${text}" @ONLY)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${site_files}/mend-mca-params.conf)
endif()
install(FILES ${site_params} DESTINATION share/mend)
install(PROGRAMS ${site_files}/slurm-job.sh ${site_files}/pbs-job.sh DESTINATION share/mend)
install(FILES ${site_files}/modulefile DESTINATION share/modulefiles/mend RENAME ${PROJECT_VERSION})
install(FILES ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/CHANGELOG.md ${PROJECT_SOURCE_DIR}/LICENSE
  DESTINATION share/doc/mend)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs/ DESTINATION share/doc/mend FILES_MATCHING PATTERN "*.md")
