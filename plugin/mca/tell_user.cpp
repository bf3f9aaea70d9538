#include "plugin/mca/tell_user.h"

#include <unistd.h>

#include <cstdarg>
#include <cstdlib>
#include <cstring>

#include "plugin/mca/ompi_compat.h"

namespace mend::mca {

void tell_user(const char* topic, ...) noexcept {
  std::va_list values;
  va_start(values, topic);
  char* text = opal_show_help_vstring("help-mpi-btl-mend.txt", topic, 1, values);
  va_end(values);
  if (text == nullptr) return;
  const std::size_t length = std::strlen(text);
  for (std::size_t at = 0; at < length;) {
    const ssize_t written = ::write(STDERR_FILENO, text + at, length - at);
    if (written <= 0) break;  // nobody listens
    at += static_cast<std::size_t>(written);
  }
  std::free(text);
}

bool speaks_for_host() noexcept { return opal_process_info.my_local_rank == 0; }

}  // namespace mend::mca
