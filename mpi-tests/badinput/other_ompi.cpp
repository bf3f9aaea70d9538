// Preloaded into a job: Open MPI is of another series than the one mend was built for.
extern "C" __attribute__((visibility("default"))) extern const char opal_version_string[];
extern "C" const char opal_version_string[] = "Open MPI v9.9.1";
