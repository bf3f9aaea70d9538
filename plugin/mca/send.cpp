// Sending: both calls copy or have copied the message into a fragment that is kept until the peer
// has it, so neither ever fails or waits, whatever the connection does.
#include "plugin/mca/descriptors.h"
#include "plugin/mca/module.h"
#include "plugin/mca/self_path.h"

namespace mend::mca {
namespace {

// Headers and small payloads: a call of memcpy costs as much as the message.
inline void copy_short(std::byte* to, const void* from, std::size_t size) {
  constexpr std::size_t kWord = sizeof(std::uint64_t);
  if (size < kWord || size > 2 * kWord) {
    std::memcpy(to, from, size);
    return;
  }
  std::uint64_t first = 0;
  std::uint64_t last = 0;  // overlaps the first
  const std::size_t rest = size - kWord;
  std::memcpy(&first, from, kWord);
  std::memcpy(&last, static_cast<const std::byte*>(from) + rest, kWord);
  std::memcpy(to, &first, kWord);
  std::memcpy(to + rest, &last, kWord);
}

// The user's data, packed; returns its size. What is contiguous is copied without the datatype
// engine.
inline std::size_t pack(opal_convertor_t* convertor, std::byte* to, std::size_t size) {
  if (opal_convertor_need_buffers(convertor) == 0) [[likely]] {
    void* from = nullptr;
    opal_convertor_get_current_pointer(convertor, &from);
    copy_short(to, from, size);
    return size;
  }
  iovec where{to, size};
  std::uint32_t count = 1;
  opal_convertor_pack(convertor, &where, &count, &size);
  return size;
}

// Always from progress(), once: the message is on its way and the copy is ours to keep, or it will
// never be because its receiver was given up.
void on_sent(ops::Frag& frag) {
  Descriptor& d = descriptor_of(frag);
  mca_btl_base_endpoint_t* endpoint = d.endpoint;
  Module* module = endpoint->module;
  // The callback may free the descriptor unless it is ours to free.
  const bool ours =
      (d.base.des_flags & MCA_BTL_DES_FLAGS_BTL_OWNERSHIP) != 0 || module->upper_closed;
  const int status = status_of(frag.failed);
  frag.failed = false;
  if (d.base.des_cbfunc != nullptr && !module->upper_closed) {
    d.base.des_cbfunc(&module->super, endpoint, &d.base, status);
  }
  if (ours) module->transport->release_user(frag);
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
    ops::Channel& channel = d.copied ? *endpoint->copied : *endpoint->channel;
    channel.send(frag, tag, true);
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
  const bool wait =
      (flags & MCA_BTL_DES_FLAGS_PRIORITY) == 0 && must_hold_back(*endpoint, endpoint->channel);
  if (!wait) [[likely]] {
    if (size - 1 < module.small_bytes) [[likely]] {  // and not 0
      frag = module.small->get();
    } else if (size <= btl->btl_max_send_size) {
      frag = module.transport->alloc_frag(static_cast<std::uint32_t>(size));
    }
  }
  if (frag == nullptr) [[unlikely]] {
    if (descriptor != nullptr) *descriptor = nullptr;
    return OPAL_ERR_RESOURCE_BUSY;
  }
  copy_short(frag->payload(), header, header_size);
  const std::size_t packed =
      payload_size == 0 ? 0 : pack(convertor, frag->payload() + header_size, payload_size);
  frag->length = static_cast<std::uint32_t>(header_size + packed);
  if (endpoint->channel != nullptr) [[likely]] {
    endpoint->channel->send_owned(*frag, tag);
  } else {
    module.self->send(*frag, module.rail, tag, false);
  }
  return OPAL_SUCCESS;
}

}  // namespace mend::mca
