#include "plugin/mca/tell_user.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

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

constexpr char kHelpFile[] = "help-mpi-btl-mend.txt";

// The text of a topic as the help file beside the component has it, to be freed, or nullptr.
char* read_topic(const char* topic) noexcept {
  std::FILE* file = std::fopen((help_directory() + kHelpFile).c_str(), "re");
  if (file == nullptr) return nullptr;
  char line[256];
  char heading[128];
  std::snprintf(heading, sizeof(heading), "[%s]\n", topic);
  std::string text;
  bool found = false;
  while (std::fgets(line, sizeof(line), file) != nullptr) {
    if (line[0] == '[') found = std::strcmp(line, heading) == 0;
    if (found && line[0] != '[' && line[0] != '#') text += line;
  }
  std::fclose(file);
  return text.empty() ? nullptr : strdup(text.c_str());
}

// A topic with its values filled in, to be freed.
char* fill_in(const char* topic, std::va_list values) noexcept {
  char* format = compat::kReadsHelpFiles ? nullptr : read_topic(topic);
  if (format == nullptr) return opal_show_help_vstring(kHelpFile, topic, 1, values);
  const std::string bar = std::string(74, '-') + '\n';
  char text[8192];
  std::vsnprintf(text, sizeof(text), format, values);
  std::free(format);
  return strdup((bar + text + bar).c_str());
}

}  // namespace

std::string help_directory() {
  Dl_info info{};
  if (dladdr(kHelpFile, &info) == 0 || info.dli_fname == nullptr) return {};
  const std::string path = info.dli_fname;
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "./" : path.substr(0, slash + 1);
}

void tell_user(const char* topic, ...) noexcept {
  std::va_list values;
  va_start(values, topic);
  char* text = fill_in(topic, values);
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
