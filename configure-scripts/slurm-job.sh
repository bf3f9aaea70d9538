#!/bin/bash
# A Slurm job whose MPI traffic goes through mend.   sbatch [options] slurm-job.sh PROGRAM [ARGUMENT...]
#SBATCH --job-name=mend
#SBATCH --nodes=1
#SBATCH --ntasks=2
#SBATCH --time=00:10:00

# "module load mend" does the same. A component that was installed into Open MPI itself needs no search path, and a
# directory that does not exist must not stand in it: Open MPI would stop searching there.
: "${MEND_PREFIX:=/usr/local}"
if [ -d "$MEND_PREFIX/lib/openmpi" ]; then
  export OMPI_MCA_mca_base_component_path=$MEND_PREFIX/lib/openmpi:SYSTEM_DEFAULT
fi
export OMPI_MCA_mca_base_envar_file_prefix=$MEND_PREFIX/share/mend/mend-mca-params.conf

if (($# == 0)); then
  echo "usage: sbatch $(basename "$0") PROGRAM [ARGUMENT...]" >&2
  exit 2
fi

# RDMA pins memory: a low limit is the commonest reason why a job starts on a login node and fails in a batch queue.
echo "locked memory limit: $(ulimit -l) KiB"

# mpirun takes hosts and task counts from the allocation.
exec mpirun "$@"
