# shellcheck shell=bash
# The environment in which the scripts start mpirun. Needs mend_root: the root of the checkout.
: "${mend_root:?}"

mpi_environment() {
  # Containers run as root, which mpirun refuses unless told twice; an ordinary user's run is left alone.
  if [ "$(id -u)" = 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  fi
  # DIR:SYSTEM_DEFAULT, because the parameter replaces Open MPI's own search path.
  export OMPI_MCA_mca_base_component_path=$mend_root/build/release/components:SYSTEM_DEFAULT
  # Open MPI warns about each transport that was asked for and finds no device.
  export OMPI_MCA_btl_base_warn_component_unused=0
}
