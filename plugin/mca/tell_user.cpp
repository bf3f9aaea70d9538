#include "plugin/mca/tell_user.h"

#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "plugin/mca/ompi_compat.h"

namespace mend::mca {
namespace {

void write_out(const char* text, std::size_t length) {
  for (std::size_t at = 0; at < length;) {
    const ssize_t written = ::write(STDERR_FILENO, text + at, length - at);
    if (written <= 0) break;  // nobody listens
    at += static_cast<std::size_t>(written);
  }
}

}  // namespace

void tell_user(const char* topic, ...) noexcept {
  std::va_list values;
  va_start(values, topic);
  char* text = opal_show_help_vstring("help-mpi-btl-mend.txt", topic, 1, values);
  va_end(values);
  if (text == nullptr) return;
  write_out(text, std::strlen(text));
  std::free(text);
}

void tell_in_a_line(const std::string& text) noexcept {
  char line[1024];
  const int length =
      std::snprintf(line, sizeof(line), "[%s:%05d] mend: %s\n", opal_process_info.nodename,
                    static_cast<int>(getpid()), text.c_str());
  write_out(line, std::min(static_cast<std::size_t>(std::max(length, 0)), sizeof(line) - 1));
}

bool speaks_for_host() noexcept { return opal_process_info.my_local_rank == 0; }

}  // namespace mend::mca
