// VerbsSpy: stands between mend and the embedded device while it lives: counts every object, breaks
// queue pairs, spoils the keys of registrations, swallows completions. The faults it makes are
// those of the device: a wrong key really is refused.
//
// Thread contract: create before the first transport and destroy after the last; the calls from the
// test's thread. One at a time. Invariant: what it counts is what is alive, whoever made it.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace mend::test {

struct LiveObjects {
  std::int64_t devices = 0, pds = 0, mrs = 0, channels = 0, cqs = 0, srqs = 0, qps = 0, ahs = 0;
  friend bool operator==(const LiveObjects&, const LiveObjects&) = default;
  std::string text() const;
};

class VerbsSpy {
 public:
  VerbsSpy();
  ~VerbsSpy();
  VerbsSpy(const VerbsSpy&) = delete;
  VerbsSpy& operator=(const VerbsSpy&) = delete;

  LiveObjects live() const;
  std::uint64_t created_qps() const;  // RC, ever

  // The next `times` registrations that begin at base get keys that the device does not know.
  void spoil(const void* base, int times);
  int spoiled() const;  // how many were

  // Queue pairs in RTS of one type.
  std::vector<ibv_qp*> in_rts(ibv_qp_type type) const;
  bool break_qp(ibv_qp* qp);  // to ERR, behind its owner's back; false: it is gone
  int query(ibv_qp* qp, ibv_qp_attr& attr, ibv_qp_init_attr& init) const;  // everything

  // An asynchronous event of the device that `context` has open, as if it had come.
  // One about a queue concerns that of qp.
  void inject(ibv_event_type type, ibv_context* context, const ibv_qp* qp = nullptr);

  int injected_left() const;  // events that nobody has taken yet

  // From now on this entry of the context's GID tables is empty; hidden(): how often that was seen.
  void hide_gid(ibv_context* context, std::uint32_t index);
  int hidden() const;

  // Datagrams sent by anybody.
  std::uint64_t datagrams() const;

  // The next `times` successful completions of puts and gets never come.
  void swallow(int times);
  int swallowed() const;
};

}  // namespace mend::test
