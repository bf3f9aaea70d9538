// What turns an engine context into an ibv_context and a configured device into an ibv_device.
#pragma once

#include <memory>

#include "softhca/engine/context.h"

namespace softhca {

// Fills the operation tables of an opened context.
void fill_operations(Context& ctx);
// The public face of a configured device.
std::unique_ptr<Device> make_device(const DeviceConf& conf, unsigned index);

}  // namespace softhca
