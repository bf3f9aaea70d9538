#include "plugin/conn/ud_channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

#include "plugin/verbs/clock.h"
#include "plugin/verbs/grh.h"
#include "plugin/verbs/log.h"
#include "plugin/verbs/objects.h"

namespace mend::conn {
namespace {

constexpr std::uint32_t kReceiveSlots = 256;
constexpr std::uint32_t kSendSlots = 64;
constexpr std::uint32_t kFewestSlots = 8;
// Stride of a slot: GRH and payload, rounded up to cache lines.
constexpr std::size_t kSlotBytes = 576;
// A datagram is sent and done within microseconds, whatever becomes of it: one that is not done by
// then never will be, nor will those behind it.
constexpr auto kLostCompletion = std::chrono::seconds(1);
static_assert(kSlotBytes >= verbs::kGrhBytes + kMaxDatagram && kSlotBytes % 64 == 0);

// The high bit would make the device use the QP's own key instead of the one in the request.
std::uint32_t random_qkey() { return (std::random_device{}() & 0x7fffffffu) | 1u; }

AhCache::Key key_of(const UdAddress& to) { return AhCache::Key{to.gid, to.lid}; }

}  // namespace

UdChannel::UdChannel(Rail& rail, std::uint32_t qkey)
    : rail_(rail), qkey_(qkey == 0 ? random_qkey() : qkey & 0x7fffffffu) {}

UdChannel::~UdChannel() = default;

Result<std::unique_ptr<UdChannel>> UdChannel::create(Rail& rail, std::uint32_t qkey) {
  std::unique_ptr<UdChannel> channel(new UdChannel(rail, qkey));
  if (auto opened = channel->open(); !opened) {
    opened.error().message =
        fmt::format("control channel of {}: {}", rail.info().name, opened.error().message);
    return tl::unexpected<Error>(std::move(opened.error()));
  }
  return channel;
}

Result<void> UdChannel::open() {
  const verbs::Api& api = rail_.api();
  Nic& nic = rail_.nic();
  const verbs::DeviceCaps& caps = nic.caps();
  auto channel = verbs::create_comp_channel(api, nic.context());
  if (!channel) return tl::unexpected<Error>(std::move(channel.error()));
  channel_ = std::move(*channel);
  auto recv_cq = verbs::create_cq(
      api, nic.context(), caps,
      {.depth = kReceiveSlots, .minimum = kFewestSlots, .channel = channel_.get()});
  if (!recv_cq) return tl::unexpected<Error>(std::move(recv_cq.error()));
  recv_cq_ = std::move(*recv_cq);
  auto send_cq =
      verbs::create_cq(api, nic.context(), caps, {.depth = kSendSlots, .minimum = kFewestSlots});
  if (!send_cq) return tl::unexpected<Error>(std::move(send_cq.error()));
  send_cq_ = std::move(*send_cq);
  auto grant = verbs::create_qp(
      api, nic.pd(), caps,
      {.type = IBV_QPT_UD,
       .send_cq = send_cq_.get(),
       .recv_cq = recv_cq_.get(),
       .send_depth = std::min(kSendSlots, static_cast<std::uint32_t>(send_cq_->cqe)),
       .send_minimum = kFewestSlots,
       .recv_depth = std::min(kReceiveSlots, static_cast<std::uint32_t>(recv_cq_->cqe)),
       .recv_minimum = kFewestSlots});
  if (!grant) return tl::unexpected<Error>(std::move(grant.error()));
  qp_ = std::move(grant->qp);
  recv_slots_ = grant->recv_depth;
  send_slots_ = grant->send_depth;
  memory_.resize((std::size_t{recv_slots_} + send_slots_) * kSlotBytes);
  auto mr =
      verbs::register_memory(api, nic.pd(), memory_.data(), memory_.size(), IBV_ACCESS_LOCAL_WRITE);
  if (!mr) return tl::unexpected<Error>(std::move(mr.error()));
  mr_ = std::move(*mr);
  const std::scoped_lock lock(mutex_);
  return walk_to_rts();
}

// From RESET; posts every receive buffer. Under the mutex.
Result<void> UdChannel::walk_to_rts() {
  const verbs::Api& api = rail_.api();
  verbs::QpParams params = rail_.qp_params({});
  params.qkey = qkey_;
  if (auto moved = verbs::modify(api, qp_.get(), verbs::ud_init(params)); !moved) return moved;
  if (const int rc = ibv_req_notify_cq(recv_cq_.get(), 0); rc != 0) {
    return fail(rc, "req_notify_cq", "arming the completion channel failed");
  }
  for (std::uint32_t slot = 0; slot < recv_slots_; ++slot) {
    if (!post_receive(slot)) return fail(EIO, "post_recv", "a receive buffer was refused");
  }
  if (auto moved = verbs::modify(api, qp_.get(), verbs::ud_rtr()); !moved) return moved;
  if (auto moved = verbs::modify(api, qp_.get(), verbs::ud_rts(params)); !moved) return moved;
  free_sends_.clear();
  for (std::uint32_t slot = 0; slot < send_slots_; ++slot) {
    free_sends_.push_back(static_cast<std::uint16_t>(slot));
  }
  handles_.destroy_retired();
  broken_ = false;
  return {};
}

std::byte* UdChannel::receive_slot(std::uint64_t slot) {
  return memory_.data() + slot * kSlotBytes;
}

std::byte* UdChannel::send_slot(std::uint64_t slot) {
  return memory_.data() + (recv_slots_ + slot) * kSlotBytes;
}

bool UdChannel::post_receive(std::uint64_t slot) {
  ibv_sge sge{};
  sge.addr = reinterpret_cast<std::uint64_t>(receive_slot(slot));
  sge.length = static_cast<std::uint32_t>(verbs::kGrhBytes + kMaxDatagram);
  sge.lkey = mr_->lkey;
  ibv_recv_wr wr{};
  wr.wr_id = slot;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  return ibv_post_recv(qp_.get(), &wr, &bad) == 0;
}

int UdChannel::fd() const { return channel_->fd; }

UdAddress UdChannel::address() const {
  const PortView view = rail_.port();
  return UdAddress{view.gid.gid, view.info.lid, Qpn{qp_->qp_num}, qkey_};
}

UdSend UdChannel::send(const UdAddress& to, std::span<const std::byte> bytes) {
  if (bytes.size() > kMaxDatagram) return UdSend::TooLong;
  const std::scoped_lock lock(mutex_);
  reap_sends();
  const bool idle = free_sends_.size() == send_slots_;
  const auto now = process_clock().now();
  if (!idle && now - unreaped_since_ > kLostCompletion) broken_ = true;
  if (broken_) return UdSend::Broken;
  ibv_ah* ah = handles_.find(key_of(to));
  if (ah == nullptr) return UdSend::NoPath;
  if (free_sends_.empty()) return UdSend::Busy;
  const std::uint16_t slot = free_sends_.back();
  std::memcpy(send_slot(slot), bytes.data(), bytes.size());
  ibv_sge sge{};
  sge.addr = reinterpret_cast<std::uint64_t>(send_slot(slot));
  sge.length = static_cast<std::uint32_t>(bytes.size());
  sge.lkey = mr_->lkey;
  ibv_send_wr wr{};
  wr.wr_id = slot;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.ud.ah = ah;
  wr.wr.ud.remote_qpn = to.qpn.value;
  wr.wr.ud.remote_qkey = to.qkey;
  ibv_send_wr* bad = nullptr;
  const int rc = ibv_post_send(qp_.get(), &wr, &bad);
  if (rc == ENOMEM) return UdSend::Busy;
  if (rc != 0) {
    broken_ = true;
    return UdSend::Broken;
  }
  free_sends_.pop_back();
  if (idle) unreaped_since_ = now;
  return UdSend::Sent;
}

// Under the mutex. An error completion means that the send queue is stopped (UD) or that the QP is
// in error.
void UdChannel::reap_sends() {
  std::array<ibv_wc, 16> done;
  int count = 0;
  while ((count = ibv_poll_cq(send_cq_.get(), static_cast<int>(done.size()), done.data())) > 0) {
    for (int i = 0; i < count; ++i) {
      const ibv_wc& wc = done[static_cast<std::size_t>(i)];
      if (wc.status != IBV_WC_SUCCESS) broken_ = true;
      free_sends_.push_back(static_cast<std::uint16_t>(wc.wr_id));
    }
    unreaped_since_ = process_clock().now();
  }
  if (handles_.has_retired() && free_sends_.size() == send_slots_) handles_.destroy_retired();
}

void UdChannel::take_wakeups() {
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  while (rail_.api().get_cq_event(channel_.get(), &cq, &context) == 0) {
    rail_.api().ack_cq_events(cq, 1);
  }
}

// One datagram, copied out so that its buffer is posted again before anyone looks at it.
bool UdChannel::take_one(Datagram& out) {
  const std::scoped_lock lock(mutex_);
  ibv_wc wc;
  while (ibv_poll_cq(recv_cq_.get(), 1, &wc) == 1) {
    if (wc.status != IBV_WC_SUCCESS) {
      broken_ = true;  // reset_in_place() posts the buffer again
      continue;
    }
    const std::byte* slot = receive_slot(wc.wr_id);
    const bool sound =
        wc.byte_len >= verbs::kGrhBytes && wc.byte_len <= verbs::kGrhBytes + kMaxDatagram;
    if (sound) {
      out.source = UdSource{Qpn{wc.src_qp}, wc.slid, false, {}};
      if ((wc.wc_flags & IBV_WC_GRH) != 0) {
        const auto gid =
            verbs::source_gid(std::span<const std::byte, verbs::kGrhBytes>(slot, verbs::kGrhBytes));
        out.source.has_gid = gid.has_value();
        if (gid) out.source.gid = *gid;
      }
      out.length = wc.byte_len - verbs::kGrhBytes;
      std::memcpy(out.bytes.data(), slot + verbs::kGrhBytes, out.length);
    }
    if (!post_receive(wc.wr_id)) broken_ = true;
    if (sound) return true;
  }
  return false;
}

int UdChannel::receive(ReceiveFn on_datagram, void* context) {
  take_wakeups();
  {
    // Armed before the poll: what arrives after the last empty poll raises a new wake-up.
    const std::scoped_lock lock(mutex_);
    if (ibv_req_notify_cq(recv_cq_.get(), 0) != 0) broken_ = true;
    reap_sends();
  }
  int count = 0;
  Datagram datagram;
  while (take_one(datagram)) {
    on_datagram(context, std::span(datagram.bytes.data(), datagram.length), datagram.source);
    ++count;
  }
  return count;
}

bool UdChannel::broken() const {
  const std::scoped_lock lock(mutex_);
  return broken_;
}

Result<void> UdChannel::resolve(const UdAddress& to) {
  const AhCache::Key key = key_of(to);
  std::uint32_t generation = 0;
  {
    const std::scoped_lock lock(mutex_);
    if (handles_.find(key) != nullptr) return {};
    generation = handles_.generation();
  }
  const verbs::PathParams path = rail_.qp_params(RemotePort{to.gid, to.lid}).path;
  auto ah = verbs::create_ah(rail_.api(), rail_.nic().pd(), verbs::path_attr(path));
  if (!ah) return tl::unexpected<Error>(std::move(ah.error()));
  const std::scoped_lock lock(mutex_);
  handles_.insert(key, generation, std::move(*ah));
  return {};
}

void UdChannel::paths_changed() {
  const std::scoped_lock lock(mutex_);
  handles_.next_generation();
}

// Under the mutex, in RESET: nothing that was posted before completes any more, and what completed
// is dropped; the protocol above retransmits.
void UdChannel::drop_completions() {
  std::array<ibv_wc, 16> dropped;
  for (ibv_cq* cq : {recv_cq_.get(), send_cq_.get()}) {
    while (ibv_poll_cq(cq, static_cast<int>(dropped.size()), dropped.data()) > 0) {
    }
  }
}

Result<void> UdChannel::reset_in_place() {
  const std::scoped_lock lock(mutex_);
  broken_ = true;
  auto moved = verbs::modify(rail_.api(), qp_.get(), verbs::to_reset());
  if (!moved) return moved;
  drop_completions();
  return walk_to_rts();
}

}  // namespace mend::conn
