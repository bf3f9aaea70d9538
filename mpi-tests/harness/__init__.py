"""How the MPI tests, the benchmarks and the bad-input tests start jobs and judge them."""
