#!/bin/bash
# A PBS job whose MPI traffic goes through mend.   qsub -v PROGRAM="./a.out args" [options] pbs-job.sh
#PBS -N mend
#PBS -l select=1:ncpus=2:mpiprocs=2
#PBS -l walltime=00:10:00
#PBS -j oe

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

if [ -z "${PROGRAM:-}" ]; then
  echo 'usage: qsub -v PROGRAM="./a.out args" pbs-job.sh' >&2
  exit 2
fi
cd "${PBS_O_WORKDIR:?this script runs under PBS}" || exit 1

# RDMA pins memory: a low limit is the commonest reason why a job starts on a login node and fails in a batch queue.
echo "locked memory limit: $(ulimit -l) KiB"

# An Open MPI built without PBS support (Debian's) does not see the allocation: the node file has one line per rank.
# PROGRAM is split into words on purpose.
# shellcheck disable=SC2086
exec mpirun --hostfile "${PBS_NODEFILE:?}" -np "$(wc -l <"$PBS_NODEFILE")" $PROGRAM
