// The answers of softhcactl as JSON, and that JSON as text for people. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tools/softhcactl/fabric_admin.h"

namespace softhcactl {

nlohmann::ordered_json describe(FabricAdmin& admin);
nlohmann::ordered_json describe_counters(FabricAdmin& admin);
nlohmann::ordered_json describe_faults(FabricAdmin& admin);
std::string faults_as_text(const nlohmann::ordered_json& faults);
std::string as_text(const nlohmann::ordered_json& fabric);
std::string counters_as_text(const nlohmann::ordered_json& counters);

}  // namespace softhcactl
