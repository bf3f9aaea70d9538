#include "tests/unit/rail/rail_kit.h"

#include <utility>

#include "ops/poller.h"
#include "ops/recv_pool.h"
#include "plugin/verbs/device.h"

namespace mend::conn {

RailKit::RailKit() {
  params.max_send_size = 256;
  params.window = 8;
  params.send_queue_depth = 16;
  params.qp_pool_size = 2;
  params.qp_linger_ms = 1000;
}

Result<std::unique_ptr<Rail>> RailKit::try_open(std::uint32_t peers) {
  if (!nic) {
    auto devices = verbs::DeviceList::query(fake.api);
    if (!devices) return tl::unexpected<Error>(devices.error());
    auto opened = Nic::open(fake.api, (*devices)[0]);
    if (!opened) return tl::unexpected<Error>(opened.error());
    nic = std::move(*opened);
  }
  return Rail::create(*nic, 1, RailId{0}, params, peers);
}

void RailKit::open(std::uint32_t peers) {
  auto made = try_open(peers);
  ASSERT_TRUE(made) << made.error().message;
  rail = std::move(*made);
}

verbs::QpParams RailKit::connected_to(Qpn dest) const {
  const PortView port = rail->port();
  verbs::QpParams out = rail->qp_params(RemotePort{port.gid.gid, port.info.lid});
  out.dest_qpn = dest;
  return out;
}

}  // namespace mend::conn
