#include "ops/frag_pool.h"

#include <sys/mman.h>

#include <cerrno>
#include <new>
#include <string>

#include "ops/ucs_compat.h"

namespace mend::ops {
namespace {

constexpr std::uint32_t kRetryGrowthEvery = 16;

// In front of every chunk that ucs sees: what unmapping needs, and the keys its Frags point to.
struct alignas(64) ChunkHead {
  std::size_t bytes = 0;
  LocalKeys keys;
};

ChunkHead& head_of(void* chunk) { return static_cast<ChunkHead*>(chunk)[-1]; }

}  // namespace

// The ucs pool. Its callbacks run inside get() (growing) and the destructor, so under lock_ or
// alone.
struct FragPool::Ucs {
  ucs_mpool_t pool;
  bool ready = false;

  explicit Ucs(FragPool* owner) {
    ucs_compat::MpoolShape shape{};
    shape.name = owner->config_.name;
    shape.private_bytes = sizeof(void*);
    shape.element_bytes = sizeof(Frag) + owner->config_.payload_bytes;
    shape.alignment = alignof(Frag);
    shape.elements_per_chunk = owner->config_.frags_per_chunk;
    shape.max_elements = owner->config_.max_frags;
    shape.ops = &kOps;
    ready = ucs_compat::mpool_init(&pool, shape);
    if (ready) {
      owner_of(&pool) = owner;
    }
  }
  ~Ucs() {
    if (ready) {
      ucs_mpool_cleanup(&pool, 0);  // strays are possible when a process gives up on a peer
    }
  }
  Ucs(const Ucs&) = delete;
  Ucs& operator=(const Ucs&) = delete;

  static FragPool*& owner_of(ucs_mpool_t* mp) {
    return *static_cast<FragPool**>(ucs_mpool_priv(mp));
  }

  static ucs_status_t alloc_chunk(ucs_mpool_t* mp, size_t* size, void** chunk) {
    FragPool& owner = *owner_of(mp);
    const std::size_t bytes = *size + sizeof(ChunkHead);
    void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) {
      return UCS_ERR_NO_MEMORY;
    }
    auto* head = new (base) ChunkHead;
    head->bytes = bytes;
    if (!owner.hooks_.register_chunk(owner.hooks_.context, base, bytes, head->keys)) {
      munmap(base, bytes);
      return UCS_ERR_NO_MEMORY;
    }
    ++owner.chunks_;
    owner.bytes_ += bytes;
    *chunk = head + 1;
    return UCS_OK;
  }

  static void release_chunk(ucs_mpool_t* mp, void* chunk) {
    FragPool& owner = *owner_of(mp);
    ChunkHead& head = head_of(chunk);
    const std::size_t bytes = head.bytes;
    owner.hooks_.unregister_chunk(owner.hooks_.context, &head);
    --owner.chunks_;
    owner.bytes_ -= bytes;
    munmap(&head, bytes);
  }

  static void init_frag(ucs_mpool_t* mp, void* object, void* chunk) {
    FragPool& owner = *owner_of(mp);
    auto* frag = new (object) Frag;
    frag->pool = &owner;
    frag->keys = &head_of(chunk).keys;
    frag->capacity = owner.config_.payload_bytes;
  }

  static ucs_mpool_ops_t kOps;
};

ucs_mpool_ops_t FragPool::Ucs::kOps = {.chunk_alloc = alloc_chunk,
                                       .chunk_release = release_chunk,
                                       .obj_init = init_frag,
                                       .obj_cleanup = nullptr,
                                       .obj_str = nullptr};

FragPool::FragPool(const FragPoolConfig& config, const MemoryHooks& hooks)
    : config_(config), hooks_(hooks) {}

FragPool::~FragPool() {
  while (free_ != nullptr) {
    Frag* frag = free_;
    free_ = reinterpret_cast<Frag*>(frag->due_next);
    ucs_mpool_put(frag);
  }
}

Result<std::unique_ptr<FragPool>> FragPool::create(const FragPoolConfig& config,
                                                   const MemoryHooks& hooks) {
  if (hooks.register_chunk == nullptr || hooks.unregister_chunk == nullptr ||
      config.frags_per_chunk == 0) {
    return fail(
        EINVAL, "frag_pool",
        std::string("fragment pool ") + config.name + " needs memory hooks and a chunk size");
  }
  std::unique_ptr<FragPool> pool(new FragPool(config, hooks));
  pool->ucs_ = std::make_unique<Ucs>(pool.get());
  if (!pool->ucs_->ready) {
    return fail(ENOMEM, "frag_pool", std::string("cannot create fragment pool ") + config.name);
  }
  return pool;
}

// Under lock_. The ucs pool owns the chunks; Frags come back to free_ and go to ucs at the end.
Frag* FragPool::refill() {
  if (exhausted_) {
    // Growing failed: try it again now and then only, for each attempt is expensive and ucs logs
    // it.
    if (ucs_mpool_is_empty(&ucs_->pool) && ++refused_ % kRetryGrowthEvery != 0) {
      return nullptr;
    }
    exhausted_ = false;
  }
  auto* frag = static_cast<Frag*>(ucs_mpool_get(&ucs_->pool));
  exhausted_ = frag == nullptr;
  taken_ += frag == nullptr ? 0 : 1;
  return frag;
}

FragPoolCounters FragPool::counters() const {
  lock_.lock();
  FragPoolCounters counters{.live = taken_, .chunks = chunks_, .bytes = bytes_};
  for (const Frag* frag = free_; frag != nullptr;
       frag = reinterpret_cast<const Frag*>(frag->due_next)) {
    --counters.live;
  }
  lock_.unlock();
  return counters;
}

}  // namespace mend::ops
