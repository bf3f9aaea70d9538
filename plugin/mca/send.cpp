// Sending: both calls copy or have copied the message into a fragment that is kept until the peer
// has it, so neither ever fails or waits, whatever the connection does.
#include "plugin/mca/descriptors.h"
#include "plugin/mca/module.h"
#include "plugin/mca/self_path.h"

namespace mend::mca {
namespace {

// Always from progress(), once: the message is on its way and the copy is ours to keep.
void on_sent(ops::Frag& frag) {
  Descriptor& d = descriptor_of(frag);
  mca_btl_base_endpoint_t* endpoint = d.endpoint;
  Module* module = endpoint->module;
  // The callback may free the descriptor unless it is ours to free.
  const bool ours =
      (d.base.des_flags & MCA_BTL_DES_FLAGS_BTL_OWNERSHIP) != 0 || module->upper_closed;
  if (d.base.des_cbfunc != nullptr && !module->upper_closed) {
    d.base.des_cbfunc(&module->super, endpoint, &d.base, OPAL_SUCCESS);
  }
  if (ours) module->transport->release_user(frag);
}

void submit_owned(Module& module, mca_btl_base_endpoint_t& endpoint, ops::Frag& frag,
                  std::uint8_t tag) {
  if (endpoint.channel != nullptr) [[likely]] {
    endpoint.channel->send_owned(frag, tag);
  } else {
    module.self->send(frag, module.rail, tag, false);
  }
}

}  // namespace

int send(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint,
         mca_btl_base_descriptor_t* descriptor, mca_btl_base_tag_t tag) noexcept {
  ops::Frag& frag = frag_of(descriptor);
  Descriptor& d = descriptor_of(frag);
  d.endpoint = endpoint;
  frag.length = static_cast<std::uint32_t>(d.segment.seg_len);
  frag.sent = &on_sent;
  if (endpoint->channel != nullptr) [[likely]] {
    endpoint->channel->send(frag, tag, true);
  } else {
    Module& module = module_of(btl);
    module.self->send(frag, module.rail, tag, true);
  }
  return OPAL_SUCCESS;
}

int sendi(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint,
          opal_convertor_t* convertor, void* header, std::size_t header_size,
          std::size_t payload_size, std::uint8_t /*order*/, std::uint32_t flags,
          mca_btl_base_tag_t tag, mca_btl_base_descriptor_t** descriptor) noexcept {
  Module& module = module_of(btl);
  const std::size_t size = header_size + payload_size;
  ops::Frag* frag = nullptr;
  if (size <= btl->btl_max_send_size && !must_hold_back(*endpoint, flags)) [[likely]] {
    frag = module.transport->alloc_frag(static_cast<std::uint32_t>(size));
  }
  if (frag == nullptr) [[unlikely]] {
    if (descriptor != nullptr) *descriptor = nullptr;
    return OPAL_ERR_RESOURCE_BUSY;
  }
  std::memcpy(frag->payload(), header, header_size);
  std::size_t packed = payload_size;
  if (payload_size != 0) {
    iovec where{frag->payload() + header_size, payload_size};
    std::uint32_t count = 1;
    opal_convertor_pack(convertor, &where, &count, &packed);
  }
  frag->length = static_cast<std::uint32_t>(header_size + packed);
  frag->sent = nullptr;
  submit_owned(module, *endpoint, *frag, tag);
  return OPAL_SUCCESS;
}

}  // namespace mend::mca
