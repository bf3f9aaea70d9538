// Stand-in for a header of Open MPI 5 and 6 that its installation forgets (opal/mca/threads/
// threads.h includes it, and expects it to define opal_thread_yield); used only where the packages
// lack it.
#pragma once

#include <sched.h>

static inline void opal_thread_yield(void) { sched_yield(); }
