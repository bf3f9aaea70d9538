// How long a connection waits for its queue pair to be ready to send: out of the pool (it is in
// INIT already: take, RTR, RTS), beside one that has to be created first (create, INIT, RTR, RTS),
// which is what every recovery would cost without the pool.
//
// The two take turns, first one then the other, so that a change in the machine's load meets both.
// Each queue pair is reset and destroyed before the next is timed, and the warm pool is refilled;
// the time for that is not counted: in a process it passes in the background.
//
// bench_qp_to_rts [--pairs 200] [--json FILE] [--verbs LIBRARY]; the first device of the library,
// port 1.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ops/poller.h"
#include "ops/recv_pool.h"
#include "plugin/conn/qp_pool.h"
#include "plugin/conn/rail.h"
#include "plugin/verbs/device.h"
#include "plugin/verbs/mutate.h"

namespace mend::bench {
namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void give_up(const std::string& why) {
  fmt::print(stderr, "bench_qp_to_rts FAILED: {}\n", why);
  std::exit(1);
}

template <typename T>
T must(Result<T> result) {
  if (!result) give_up(result.error().message);
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

// Microseconds of one queue pair's way, step by step.
struct Way {
  double take = 0, rtr = 0, rts = 0;
  double all() const { return take + rtr + rts; }
};

double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const auto at = static_cast<std::size_t>(share * static_cast<double>(values.size()));
  return values[std::min(values.size() - 1, at)];
}

class Bench {
 public:
  Bench(const std::string& library, const conn::Params& params)
      : params_(params),
        api_(*must(verbs::load(library))),
        devices_(must(verbs::DeviceList::query(api_))),
        nic_(must(conn::Nic::open(api_, first(devices_)))),
        rail_(must(conn::Rail::create(*nic_, 1, RailId{0}, params_, 1))),
        warm_(*rail_, params_),
        cold_(*rail_, without_pool(params_)),
        peer_(must(cold_.take(Qpn{}))) {}
  ~Bench() { retire(cold_, *peer_); }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  Way warm() {
    must(warm_.refill());
    return one(warm_, 0);
  }
  Way cold() { return one(cold_, 1); }
  const std::string& rail_name() const { return rail_->info().name; }

 private:
  static ibv_device* first(const verbs::DeviceList& devices) {
    if (devices.size() == 0) give_up("the library has no device");
    return devices[0];
  }
  static conn::Params without_pool(conn::Params params) {
    params.qp_pool_size = 0;
    return params;
  }
  // `creations`: how many the pool must not exceed, nor fall short of, on the way.
  Way one(conn::QpPool& pool, std::uint64_t creations) {
    const std::uint64_t created = pool.counts().created;
    const verbs::QpParams path = to_peer();
    const auto start = Clock::now();
    auto taken = pool.take(Qpn{});
    const auto have = Clock::now();
    conn::RcQp& qp = *must(std::move(taken));
    const auto before_rtr = Clock::now();
    auto rtr = pool.to_rtr(qp, path);
    const auto in_rtr = Clock::now();
    must(std::move(rtr));
    const auto before_rts = Clock::now();
    auto rts = pool.to_rts(qp, path);
    const auto in_rts = Clock::now();
    must(std::move(rts));
    if (pool.counts().created - created != creations)
      give_up(fmt::format("{} queue pairs were created on the way, not {}",
                          pool.counts().created - created, creations));
    retire(pool, qp);
    const auto us = [](Clock::time_point from, Clock::time_point to) {
      return std::chrono::duration<double, std::micro>(to - from).count();
    };
    return {us(start, have), us(before_rtr, in_rtr), us(before_rts, in_rts)};
  }
  verbs::QpParams to_peer() const {
    const conn::PortView port = rail_->port();
    verbs::QpParams path = rail_->qp_params(conn::RemotePort{port.gid.gid, port.info.lid});
    path.dest_qpn = peer_->qpn;
    path.rq_psn = Psn{0x1111};
    path.sq_psn = Psn{0x2222};
    return path;
  }
  // Nothing was sent on it: RESET drops nothing.
  void retire(conn::QpPool& pool, conn::RcQp& qp) {
    must(verbs::modify(api_, qp.qp.get(), verbs::to_reset()));
    qp.stage = conn::QpStage::Fenced;
    pool.park(&qp, 0);
    pool.reap(conn::kNever - 1);
  }

  const conn::Params params_;
  const verbs::Api& api_;
  const verbs::DeviceList devices_;
  const std::unique_ptr<conn::Nic> nic_;
  const std::unique_ptr<conn::Rail> rail_;
  conn::QpPool warm_;
  conn::QpPool cold_;
  conn::RcQp* const peer_;  // what the others are connected to; stays in INIT
};

struct Series {
  std::vector<double> take, rtr, rts, all;
  void add(const Way& way) {
    take.push_back(way.take);
    rtr.push_back(way.rtr);
    rts.push_back(way.rts);
    all.push_back(way.all());
  }
  nlohmann::ordered_json figures() const {
    return {{"take", quantile(take, 0.5)}, {"rtr", quantile(rtr, 0.5)}, {"rts", quantile(rts, 0.5)},
            {"p50", quantile(all, 0.5)},   {"p90", quantile(all, 0.9)}, {"min", quantile(all, 0.0)},
            {"samples", all.size()}};
  }
};

void print_row(const char* name, const nlohmann::ordered_json& figures) {
  fmt::print("{:<6}", name);
  for (const char* column : {"take", "rtr", "rts", "p50", "p90", "min"})
    fmt::print("{:>9.2f}", figures[column].get<double>());
  fmt::print("\n");
}

int run(const std::string& library, int pairs, const std::string& json) {
  conn::Params params;
  params.qp_pool_size = 1;
  Bench bench(library, params);
  Series warm, cold;
  for (int i = -1; i < pairs; ++i) {
    const Way first = i % 2 == 0 ? bench.warm() : bench.cold();
    const Way second = i % 2 == 0 ? bench.cold() : bench.warm();
    if (i < 0) continue;  // what only the first pair pays
    warm.add(i % 2 == 0 ? first : second);
    cold.add(i % 2 == 0 ? second : first);
  }
  const nlohmann::ordered_json line = {{"rail", bench.rail_name()},
                                       {"pairs", pairs},
                                       {"warm_us", warm.figures()},
                                       {"cold_us", cold.figures()}};
  fmt::print("# a queue pair to RTS on {}, {} pairs: medians of the steps and of the whole, us\n",
             bench.rail_name(), pairs);
  fmt::print("           take      RTR      RTS      p50      p90      min\n");
  print_row("warm", line["warm_us"]);
  print_row("cold", line["cold_us"]);
  const double warm_p50 = line["warm_us"]["p50"].get<double>();
  const double cold_p50 = line["cold_us"]["p50"].get<double>();
  if (warm_p50 <= 0 || cold_p50 <= 0) give_up("a median of 0: nothing was measured");
  fmt::print("# cold / warm {:.2f}\n", cold_p50 / warm_p50);
  if (json.empty()) return 0;
  std::ofstream out(json);
  out << line.dump() << '\n';
  out.close();
  if (!out) give_up("cannot write " + json);
  return 0;
}

int start(int argc, char** argv) {
  CLI::App app{"Time of a queue pair to RTS: out of the pool, and created first."};
  int pairs = 200;
  std::string json;
  std::string library = SOFTHCA_LIBRARY;
  app.add_option("--pairs", pairs, "measurements of each kind")->check(CLI::Range(1, 1000000));
  app.add_option("--json", json, "file for the figures");
  app.add_option("--verbs", library, "library with the libibverbs ABI; default: the embedded one");
  CLI11_PARSE(app, argc, argv);
  // A fabric of its own: what else runs on this machine is not to be disturbed.
  setenv("SOFTHCA_FABRIC", fmt::format("bench-qp-{}", getpid()).c_str(), 0);
  return run(library, pairs, json);
}

}  // namespace
}  // namespace mend::bench

int main(int argc, char** argv) {
  try {
    return mend::bench::start(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_qp_to_rts FAILED: %s\n", e.what());
    return 1;
  }
}
