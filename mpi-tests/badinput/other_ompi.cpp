// Preloaded into a job: Open MPI is of another series than the one mend was built for.
extern "C" {
extern __attribute__((visibility("default"))) const char opal_version_string[];
const char opal_version_string[] = "Open MPI v9.9.1";
}
