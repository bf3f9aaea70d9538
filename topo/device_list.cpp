#include "topo/device_list.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "topo/split.h"

namespace mend::topo {
namespace {

tl::unexpected<Error> bad(const std::string& message) {
  return fail(EINVAL, "btl_mend_if_include, btl_mend_if_exclude", message);
}

std::string trim(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

Result<Selector> parse_selector(const std::string& word) {
  const std::size_t colon = word.find(':');
  Selector selector{word.substr(0, colon), 0};
  if (selector.device.empty()) return bad("a device name is missing in \"" + word + "\"");
  if (colon == std::string::npos) return selector;
  const char* first = word.data() + colon + 1;
  const char* last = word.data() + word.size();
  const auto [end, error] = std::from_chars(first, last, selector.port);
  if (error != std::errc{} || end != last || selector.port < 1 || selector.port > 255)
    return bad("\"" + word + "\" is not dev[:port] with a port from 1 to 255");
  return selector;
}

bool matches(const Selector& selector, const Port& port) {
  return selector.device == port.device && (selector.port == 0 || selector.port == port.number);
}

std::string names_of(std::span<const Port> ports) {
  std::string text;
  for (const Port& port : ports)
    text += (text.empty() ? "" : ", ") + port.device + ":" + std::to_string(port.number);
  return text.empty() ? "none" : text;
}

Result<void> check_known(std::span<const Port> present, const std::vector<Selector>& list,
                         const char* parameter) {
  for (const Selector& selector : list) {
    const bool known = std::any_of(present.begin(), present.end(),
                                   [&](const Port& port) { return matches(selector, port); });
    if (known) continue;
    const std::string port = selector.port == 0 ? "" : ":" + std::to_string(selector.port);
    return fail(EINVAL, parameter,
                std::string(parameter) + " names " + selector.device + port +
                    ", which does not exist here; present: " + names_of(present));
  }
  return {};
}

}  // namespace

bool name_less(const std::string& a, const std::string& b) {
  return strverscmp(a.c_str(), b.c_str()) < 0;
}

Result<std::vector<Selector>> parse_device_list(const std::string& text) {
  std::vector<Selector> list;
  if (trim(text).empty()) return list;
  for (const std::string& word : split(text, ',')) {
    Result<Selector> selector = parse_selector(trim(word));
    if (!selector) return tl::unexpected(selector.error());
    list.push_back(*selector);
  }
  return list;
}

Result<std::vector<std::size_t>> select_ports(std::span<const Port> present,
                                              const std::string& include,
                                              const std::string& exclude) {
  if (!trim(include).empty() && !trim(exclude).empty())
    return bad("if_include and if_exclude exclude each other; set only one of them");
  const bool including = !trim(include).empty();
  Result<std::vector<Selector>> list = parse_device_list(including ? include : exclude);
  if (!list) return tl::unexpected(list.error());
  if (Result<void> known =
          check_known(present, *list, including ? "btl_mend_if_include" : "btl_mend_if_exclude");
      !known)
    return tl::unexpected(known.error());
  std::vector<std::size_t> chosen;
  for (std::size_t i = 0; i < present.size(); ++i) {
    const bool listed = std::any_of(list->begin(), list->end(),
                                    [&](const Selector& s) { return matches(s, present[i]); });
    if (listed == including) chosen.push_back(i);
  }
  return chosen;
}

}  // namespace mend::topo
