// One configuration per fabric: the first process leaves its INI text in the global segment, every
// later one and softhcactl read it there. All calls need the attach lock held.
#pragma once

#include <string>

#include "softhca/conf/conf.h"
#include "softhca/engine/shm_layout.h"

namespace softhca {

// Publishes `conf` in a fresh segment, with its ports in their configured state.
void publish_conf(GlobalShared& global, const FabricConf& conf) noexcept;
// ENOENT if nobody has published yet.
int read_shared_conf(const GlobalShared& global, FabricConf* conf, std::string* why);
// What a process that attaches does: publishes SOFTHCA_CONF (or the default) if it is the first,
// else takes what is there. EEXIST if its own SOFTHCA_CONF says something else.
int agree_on_conf(GlobalShared& global, FabricConf* conf, std::string* why);

}  // namespace softhca
