#include "plugin/mca/descriptors.h"

#include <algorithm>
#include <new>

#include "plugin/mca/module.h"

namespace mend::mca {
namespace {

// Running OBJ_CONSTRUCT for every message costs more than the message: one object is constructed
// and copied.
mca_btl_base_descriptor_t g_prototype;

mca_btl_base_descriptor_t* new_descriptor(mca_btl_base_endpoint_t* endpoint, ops::Frag& frag,
                                          std::size_t size, std::uint32_t flags, bool copied) {
  auto* d = new (frag.user) Descriptor{g_prototype, {}, endpoint, copied};
  d->segment.seg_addr.pval = frag.payload();
  d->segment.seg_len = size;
  d->base.des_segments = &d->segment;
  d->base.des_flags = flags;
  return &d->base;
}

}  // namespace

void make_descriptor_prototype() {
  OBJ_CONSTRUCT(&g_prototype, mca_btl_base_descriptor_t);
  g_prototype.des_segments = nullptr;
  g_prototype.des_segment_count = 1;
  g_prototype.des_cbfunc = nullptr;
  g_prototype.des_cbdata = nullptr;
  g_prototype.des_context = nullptr;
  g_prototype.des_flags = 0;
  g_prototype.order = MCA_BTL_NO_ORDER;
}

bool must_hold_back(const mca_btl_base_endpoint_t& endpoint, const ops::Channel* channel) {
  return channel != nullptr && !channel->posting() &&
         channel->held_bytes() > endpoint.module->held_limit;
}

mca_btl_base_descriptor_t* alloc(mca_btl_base_module_t* btl, mca_btl_base_endpoint_t* endpoint,
                                 std::uint8_t /*order*/, std::size_t size,
                                 std::uint32_t flags) noexcept {
  if (size > btl->btl_max_send_size) return nullptr;
  ops::Frag* frag = module_of(btl).transport->alloc_frag(static_cast<std::uint32_t>(size));
  if (frag == nullptr) [[unlikely]] {
    return nullptr;
  }
  return new_descriptor(endpoint, *frag, size, flags, false);
}

int free_descriptor(mca_btl_base_module_t* btl, mca_btl_base_descriptor_t* descriptor) noexcept {
  module_of(btl).transport->release_user(frag_of(descriptor));
  return OPAL_SUCCESS;
}

mca_btl_base_descriptor_t* prepare_src(mca_btl_base_module_t* btl,
                                       mca_btl_base_endpoint_t* endpoint,
                                       opal_convertor_t* convertor, std::uint8_t /*order*/,
                                       std::size_t reserve, std::size_t* size,
                                       std::uint32_t flags) noexcept {
  if (reserve > btl->btl_max_send_size) return nullptr;
  if ((flags & MCA_BTL_DES_FLAGS_PRIORITY) == 0 && must_hold_back(*endpoint, endpoint->copied))
    return nullptr;
  std::size_t bytes = std::min(*size, btl->btl_max_send_size - reserve);
  conn::Transport& transport = *module_of(btl).transport;
  ops::Frag* frag = transport.alloc_frag(static_cast<std::uint32_t>(reserve + bytes));
  if (frag == nullptr) [[unlikely]] {
    return nullptr;
  }
  iovec where{frag->payload() + reserve, bytes};
  std::uint32_t count = 1;
  if (opal_convertor_pack(convertor, &where, &count, &bytes) < 0) {
    transport.release_user(*frag);
    return nullptr;
  }
  *size = bytes;
  return new_descriptor(endpoint, *frag, reserve + bytes, flags, true);
}

}  // namespace mend::mca
