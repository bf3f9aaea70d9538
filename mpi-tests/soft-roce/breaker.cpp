// A verbs library that is the system's libibverbs, but breaks queue pairs: what
// btl_mend_verbs_library is pointed at to see mend recover on a real device, which has no fault
// schedule. On the ranks named in MEND_BREAK_RANKS ("0,1") every MEND_BREAK_MS milliseconds of the
// wall clock, so that several ranks strike together, one RC queue pair in RTS is moved to ERR with
// ibv_modify_qp, behind the back of its user; MEND_BREAK_LIMIT times at most. Each is a line in
// MEND_BREAK_LOG.<rank>: nanoseconds of CLOCK_REALTIME, queue pair number.
//
// Only what concerns the life of a queue pair is defined here; every other symbol is found in
// libibverbs, on which this library depends.
//
// Thread contract: any thread may call; one mutex guards the set of queue pairs and is held across
// the calls into libibverbs, so that none is destroyed while it is struck.
#include <dlfcn.h>
#include <infiniband/verbs.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::system_clock;

std::string variable(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}

template <typename Function>
Function real(const char* symbol) {
  static void* const library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<Function>(library != nullptr ? dlsym(library, symbol) : nullptr);
}

bool listed(const std::string& list, const std::string& word) {
  return !word.empty() && ("," + list + ",").find("," + word + ",") != std::string::npos;
}

class Breaker {
 public:
  Breaker() {
    const std::string rank = variable("OMPI_COMM_WORLD_RANK", "");
    if (!listed(variable("MEND_BREAK_RANKS", ""), rank)) return;
    period_ = std::chrono::milliseconds(std::atoi(variable("MEND_BREAK_MS", "500").c_str()));
    limit_ = std::atoi(variable("MEND_BREAK_LIMIT", "1000000").c_str());
    log_ = variable("MEND_BREAK_LOG", "/dev/null");
    if (log_ != "/dev/null") log_ += "." + rank;
    if (period_.count() > 0) thread_ = std::jthread([this](const std::stop_token& s) { run(s); });
  }

  std::mutex mutex;

  // With `mutex` held.
  void forget(const ibv_qp* qp) { std::erase(ready_, qp); }
  void remember(ibv_qp* qp) {
    forget(qp);
    ready_.push_back(qp);
  }

 private:
  void run(const std::stop_token& stop) {
    std::unique_lock lock(mutex);
    for (int strikes = 0; strikes < limit_ && !stop.stop_requested();) {
      const auto now = Clock::now().time_since_epoch();
      const auto next = (now / period_ + 1) * period_;
      wake_.wait_for(lock, stop, next - now, [] { return false; });
      if (!stop.stop_requested() && !ready_.empty()) strikes += strike() ? 1 : 0;
    }
  }

  // The one that became ready last: the others may be on their way out.
  bool strike() {
    ibv_qp* qp = ready_.back();
    ready_.pop_back();
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    static const auto modify = real<decltype(&ibv_modify_qp)>("ibv_modify_qp");
    if (modify(qp, &attr, IBV_QP_STATE) != 0) return false;
    if (std::FILE* file = std::fopen(log_.c_str(), "a")) {
      const auto time = std::chrono::nanoseconds(Clock::now().time_since_epoch()).count();
      std::fprintf(file, "%lld %u\n", static_cast<long long>(time), qp->qp_num);
      std::fclose(file);
    }
    return true;
  }

  std::chrono::milliseconds period_{0};
  int limit_ = 0;
  std::string log_;
  std::vector<ibv_qp*> ready_;  // RC queue pairs in RTS
  std::condition_variable_any wake_;
  std::jthread thread_;  // last: it uses all others
};

// Never destroyed: queue pairs may be destroyed after static objects are.
Breaker& breaker() {
  static auto* const instance = new Breaker;
  return *instance;
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) {
  static const auto modify = real<decltype(&ibv_modify_qp)>("ibv_modify_qp");
  Breaker& state = breaker();
  const std::scoped_lock lock(state.mutex);
  const int code = modify(qp, attr, mask);
  if ((mask & IBV_QP_STATE) == 0 || code != 0 || qp->qp_type != IBV_QPT_RC) return code;
  if (attr->qp_state == IBV_QPS_RTS) {
    state.remember(qp);
  } else {
    state.forget(qp);
  }
  return code;
}

__attribute__((visibility("default"))) int ibv_destroy_qp(ibv_qp* qp) {
  static const auto destroy = real<decltype(&ibv_destroy_qp)>("ibv_destroy_qp");
  Breaker& state = breaker();
  const std::scoped_lock lock(state.mutex);
  state.forget(qp);
  return destroy(qp);
}

}  // extern "C"
