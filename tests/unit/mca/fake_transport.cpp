#include "tests/unit/mca/fake_transport.h"

#include <cerrno>
#include <cstdlib>
#include <new>

#include "plugin/conn/stats.h"

namespace mend::test {

FakeTransport& fake() {
  static FakeTransport the_fake;
  return the_fake;
}
void reset_fake() { fake() = FakeTransport{}; }

}  // namespace mend::test

namespace mend::conn {

using test::fake;

struct Transport::Impl {
  std::uint32_t next_id = 1;
};

Transport::Transport(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {
  static const std::atomic<bool> calm{false};
  attention_ = &calm;
  ++fake().alive;
}
Transport::~Transport() { --fake().alive; }

Result<std::unique_ptr<Transport>> Transport::create(const Params& params, const Identity& self,
                                                     const Upcalls& upcalls) {
  if (fake().create_error != 0) return fail(fake().create_error, "device", "it is not there");
  fake().params = params;
  fake().identity = self;
  fake().upcalls = upcalls;
  if (upcalls.before_threads != nullptr) upcalls.before_threads(upcalls.context);
  return std::unique_ptr<Transport>(new Transport(std::make_unique<Impl>()));
}

std::span<const RailInfo> Transport::rails() const { return fake().rails; }
std::vector<std::byte> Transport::modex() const { return {std::byte{1}, std::byte{2}}; }

Result<Peer*> Transport::add_peer(std::uint32_t, std::uint32_t rank, const std::string&,
                                  std::span<const std::byte>) {
  if (fake().add_peer_error != 0) {
    return fail(fake().add_peer_error, "peer", "no way to process " + std::to_string(rank));
  }
  fake().peers.push_back(std::make_unique<Peer>());
  return fake().peers.back().get();
}
void Transport::remove_peer(Peer*) {}
bool Transport::reaches(const Peer*, RailId) const { return true; }
// Endpoints note where it is; nobody sends.
ops::Channel& Transport::channel(Peer*, RailId) {
  alignas(ops::Channel) static std::byte nowhere[sizeof(ops::Channel)];
  return reinterpret_cast<ops::Channel&>(nowhere);
}

ops::Frag* Transport::alloc_frag(std::uint32_t payload_bytes) {
  if (fake().no_fragments) return nullptr;
  const std::size_t bytes = (sizeof(ops::Frag) + payload_bytes + 63) / 64 * 64;
  auto* frag = new (std::aligned_alloc(64, bytes)) ops::Frag;
  frag->capacity = payload_bytes;
  frag->held = ops::kHoldUser;
  ++fake().frags_out;
  return frag;
}
void Transport::release_user(ops::Frag& frag) {
  --fake().frags_out;
  std::free(&frag);
}

Result<void> Transport::register_region(void*, std::size_t bytes, unsigned access, Region& out) {
  fake().accesses.push_back(access);
  if (fake().refuse_registrations > 0) {
    --fake().refuse_registrations;
    return fail(ENOMEM, "reg_mr", "the limit of locked memory is reached");
  }
  if (fake().deny_write && (access & (kLocalWrite | kRemoteWrite)) != 0) {
    return fail(EFAULT, "reg_mr", "the mapping is read-only");
  }
  out = Region{};
  out.reg_id = impl_->next_id++;
  out.generation = 7;
  out.bytes = bytes;
  for (unsigned i = 0; i < kMaxRails; ++i) {
    out.local.lkey[i] = Lkey{100 + i};
    out.remote.rkey[i] = Rkey{200 + i};
  }
  ++fake().regions_out;
  return {};
}
void Transport::deregister_region(Region&) { --fake().regions_out; }

void Transport::ask_attention() {}
void Transport::give_up_peer(Peer* peer) { fake().given_up.push_back(peer); }
void Transport::give_up_process(std::uint32_t, std::uint32_t rank) {
  fake().given_up_ranks.push_back(rank);
}
bool Transport::ever_used(const Peer*) const { return fake().peers_used; }

int Transport::progress(RailId) { return 0; }
int Transport::attend() { return 0; }
bool Transport::flushed() const { return true; }
void Transport::close() {
  if (fake().during_close != nullptr) fake().during_close();
  fake().closed = true;
  fake().closed_before_regions = fake().regions_out;
}

std::string Transport::stats_json() const { return fake().stats; }
std::uint64_t Transport::stat(unsigned index) const { return 1000 + index; }
std::span<const char* const> Transport::stat_names() { return kStatNames; }

}  // namespace mend::conn
