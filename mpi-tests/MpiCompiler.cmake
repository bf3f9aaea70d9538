# mend_mpi_c: the C interface of MPI as mpicc describes it. Not FindMPI: it adds the removed C++ bindings, and the
# wrapper is what users compile with.
find_program(MEND_MPICC mpicc REQUIRED)
function(mend_mpicc_words output what)
  execute_process(COMMAND ${MEND_MPICC} --showme:${what} OUTPUT_VARIABLE text
    OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(words UNIX_COMMAND "${text}")
  set(${output} ${words} PARENT_SCOPE)
endfunction()

mend_mpicc_words(include_words incdirs)
mend_mpicc_words(library_dirs libdirs)
mend_mpicc_words(libraries libs)
add_library(mend_mpi_c INTERFACE)
target_include_directories(mend_mpi_c SYSTEM INTERFACE ${include_words})
target_link_directories(mend_mpi_c INTERFACE ${library_dirs})
target_link_libraries(mend_mpi_c INTERFACE ${libraries})
target_compile_definitions(mend_mpi_c INTERFACE OMPI_SKIP_MPICXX=1)

# Whether a program may go on when a process is lost: the MPIX_ calls of ULFM, in Open MPI 5.
set(mend_mpi_survives OFF)
find_file(MEND_MPI_EXTENSIONS mpi-ext.h PATHS ${include_words} NO_DEFAULT_PATH)
if(MEND_MPI_EXTENSIONS)
  file(STRINGS ${MEND_MPI_EXTENSIONS} mend_mpi_survives REGEX "define OMPI_HAVE_MPI_EXT_FTMPI 1")
endif()
