// Where the library layers say things: one process-wide sink that the layer above installs
// (plugin/mca sends it to opal_output, tools to stderr). Without a sink nothing is said.
//
// Thread contract: log() from any thread; set_log_sink() before the first object is created and
// after the last is gone. The sink may be called from the service and worker threads: it must not
// touch OPAL objects that are not thread-safe.
#pragma once

#include <string_view>

namespace mend {

enum class LogLevel : unsigned char { Error, Warn, Info, Debug };

using LogSink = void (*)(LogLevel level, std::string_view text);

void set_log_sink(LogSink sink);
void log(LogLevel level, std::string_view text);
bool log_wanted();  // a sink is installed: callers format only then

}  // namespace mend
