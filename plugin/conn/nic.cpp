#include "plugin/conn/nic.h"

#include <utility>

#include "plugin/verbs/async_events.h"
#include "plugin/verbs/objects.h"

namespace mend::conn {

Nic::Nic(const verbs::Api& api, verbs::Context context, verbs::Pd pd, verbs::DeviceCaps caps)
    : api_(api), context_(std::move(context)), pd_(std::move(pd)), caps_(std::move(caps)) {}

Result<std::unique_ptr<Nic>> Nic::open(const verbs::Api& api, ibv_device* device) {
  auto context = verbs::open_device(api, device);
  if (!context) return tl::unexpected<Error>(std::move(context.error()));
  auto caps = verbs::query_caps(api, context->get());
  if (!caps) return tl::unexpected<Error>(std::move(caps.error()));
  if (auto ready = verbs::prepare_async_events(context->get()); !ready) {
    return tl::unexpected<Error>(std::move(ready.error()));
  }
  auto pd = verbs::alloc_pd(api, context->get());
  if (!pd) return tl::unexpected<Error>(std::move(pd.error()));
  return std::unique_ptr<Nic>(new Nic(api, std::move(*context), std::move(*pd), std::move(*caps)));
}

}  // namespace mend::conn
