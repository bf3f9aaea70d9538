#!/bin/bash
# A Slurm job whose MPI traffic goes through mend.   sbatch [options] slurm-job.sh PROGRAM [ARGUMENT...]
#SBATCH --job-name=mend
#SBATCH --nodes=1
#SBATCH --ntasks=2
#SBATCH --time=00:10:00

# "module load mend" does the same. Open MPI stops searching at a directory that does not exist. A component that was installed
# into Open MPI itself needs a search path too: without any, the ranks of 5.0 do not look there, and the job runs over TCP.
: "${MEND_PREFIX:=/usr/local}"
if [ -d "$MEND_PREFIX/lib/openmpi" ]; then
  export OMPI_MCA_mca_base_component_path=$MEND_PREFIX/lib/openmpi:SYSTEM_DEFAULT
else
  export OMPI_MCA_mca_base_component_path="${OMPI_MCA_mca_base_component_path:-SYSTEM_DEFAULT:USER_DEFAULT}"
fi
# 5.0 hands that path on to PMIx, which complains in every job, unless it is told its own: the directory beside its library.
pmix=$(realpath "$(ldd "$(type -P ompi_info)" | awk '/libpmix\.so/ { print $3 }')" 2>/dev/null)
if [ -d "${pmix%/*}/pmix" ]; then
  export PMIX_MCA_pmix_mca_base_component_path="${PMIX_MCA_pmix_mca_base_component_path:-${pmix%/*}/pmix}"
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
