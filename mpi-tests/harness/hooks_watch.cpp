// Preloaded into a rank, tells when code is written over, by whom, and who is running then: on
// stderr a line "hooks_watch: libopen-pal.so.40 writes code, threads: libpmix.so.2", with the
// library that the start of each thread is in (that of std::thread is libstdc++).
//
// Open MPI's memory hooks are such writes, of 13 bytes each and without stopping anybody: a thread
// that is inside those bytes dies of SIGILL.
//
// Thread contract: any thread may call.
#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <string>

namespace {

struct State {
  std::mutex mutex;
  std::multiset<std::string> threads;  // that were started and have not ended; guarded by mutex
};

// Made with the first call: constructors of other libraries, which write code, run before those of
// a preloaded one. Never destroyed: so do destructors.
State& state() {
  static auto& made = *new State;
  return made;
}

std::string library_of(void* code) {
  Dl_info info{};
  if (dladdr(code, &info) == 0 || info.dli_fname == nullptr) return "unknown";
  const char* slash = std::strrchr(info.dli_fname, '/');
  return slash != nullptr ? slash + 1 : info.dli_fname;
}

struct Thread {
  void* (*start)(void*);
  void* argument;
  std::string library;

  Thread(void* (*start_)(void*), void* argument_)
      : start(start_), argument(argument_), library(library_of(reinterpret_cast<void*>(start_))) {
    const std::lock_guard lock(state().mutex);
    state().threads.insert(library);
  }
  ~Thread() {
    const std::lock_guard lock(state().mutex);
    state().threads.erase(state().threads.find(library));
  }
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;
};

void* run(void* given) {
  const std::unique_ptr<Thread> thread(static_cast<Thread*>(given));
  return thread->start(thread->argument);
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int pthread_create(pthread_t* id,
                                                          const pthread_attr_t* attributes,
                                                          void* (*start)(void*), void* argument) {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto real = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  auto thread = std::make_unique<Thread>(start, argument);
  const int error = real(id, attributes, &run, thread.get());
  if (error == 0) static_cast<void>(thread.release());  // the thread has it
  return error;
}

__attribute__((visibility("default"))) int mprotect(void* address, size_t bytes, int protection) {
  if ((protection & PROT_EXEC) != 0 && (protection & PROT_WRITE) != 0) {
    const std::string writer = library_of(__builtin_return_address(0));
    const std::lock_guard lock(state().mutex);
    std::string threads;
    for (const std::string& library : state().threads) threads += " " + library;
    std::fprintf(stderr, "hooks_watch: %s writes code, threads:%s\n", writer.c_str(),
                 threads.c_str());
  }
  return static_cast<int>(syscall(SYS_mprotect, address, bytes, protection));
}
}
