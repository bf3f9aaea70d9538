// Every tunable of the transport, in one place, with its default and legal range; plugin/mca
// registers them as MCA variables (btl_mend_<name>), param_table.h describes them. Plain data: no
// locking; read-only after start.
#pragma once

#include <cstdint>
#include <string>

namespace mend::conn {

struct Params {
  // device choice
  std::string verbs_library = "auto";  // auto | softhca | path of a library with the libibverbs ABI
  bool embedded_allowed =
      true;  // auto may fall back on the embedded device: the whole job runs on this host
  bool survives_losses = false;  // the job goes on without processes that are given up
  std::string softhca_path;  // where libsofthca.so is; empty: component dir, ../lib, install prefix
  std::string if_include, if_exclude;  // dev[:port] lists, exclusive of each other
  std::string numa_policy = "near";    // near | spread | none
  std::string test_bindings;           // CPUs of each local rank, "0-3/4-7"; empty: the truth
  bool test_one_machine = false;       // hosts of other names are this machine as well
  int gid_index = -1;                  // -1 = choose by kind and address
  int pkey = 0;                        // partition key value, 0 = the first usable
  int mtu = 0;                         // bytes 256..4096, 0 = the port's active MTU
  int service_level = 0;               // 0..15
  int traffic_class = 0;               // 0..255
  // RC timers (codes as in openib)
  int ib_timeout = 15;        // 0..31: 4.096 us * 2^t
  int ib_retry_count = 7;     // 0..7
  int ib_rnr_retry = 7;       // 0..7, 7 = for ever
  int ib_min_rnr_timer = 12;  // 0..31 (12 = 0.64 ms)
  // queues
  int max_inline = -1;        // bytes, -1 = the device's, at most 256
  int send_queue_depth = 0;   // WRs, 0 = from rate x latency x 1.5
  int srq_depth = 0;          // buffers, 0 = automatic; never below 2 x live QPs
  int srq_low_watermark = 0;  // buffers, 0 = a quarter of the depth
  int window = 128;           // SENDs per direction, 2..4096
  int qp_pool_size = 2;       // warm QPs per rail
  int qp_linger_ms = 1000;    // parked QPs before destroy
  bool prewarm = false;       // connect to every peer in add_procs
  // recovery
  int heartbeat_interval_ms = 500;
  int heartbeat_misses = 3;
  int heartbeat_idle_s = 10;
  int max_outage_s = 120;  // 0 = for ever
  int reconnect_backoff_min_ms = 10;
  int reconnect_backoff_max_ms = 2000;
  std::string standby = "on";  // on | off
  std::string stats;  // empty: no stats line; "stderr"; or the prefix of a file per process
  // memory
  std::uint64_t held_bytes_per_peer =
      64ull << 20;  // bulk traffic is refused beyond it while a connection is down
  std::uint32_t max_send_size =
      32 *
      1024;  // payload bytes of the largest Frag and of every receive buffer (incl. BTL header)
  std::uint32_t small_frag_size = 1024;  // payload bytes of the small Frag class
};

}  // namespace mend::conn
