// Stand-in for a header of Open MPI 5 and 6 that its installation forgets (opal/mca/threads/tsd.h
// includes it); used only where the packages lack it. Thread-specific data is pthread's.
#pragma once

#include <pthread.h>

typedef pthread_key_t opal_tsd_key_t;

static inline int opal_tsd_key_delete(opal_tsd_key_t key) {
  return pthread_key_delete(key) == 0 ? 0 : -1;  // OPAL_SUCCESS, OPAL_ERROR
}

static inline int opal_tsd_set(opal_tsd_key_t key, void* value) {
  return pthread_setspecific(key, value) == 0 ? 0 : -1;
}

static inline int opal_tsd_get(opal_tsd_key_t key, void** value) {
  *value = pthread_getspecific(key);
  return 0;
}
