#include "softhca/fault/fault_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "softhca/fault/fault_names.h"

namespace softhca {

namespace {

void add_number(std::string& out, const char* name, uint64_t value) {
  out += ",\"";
  out += name;
  out += "\":";
  out += std::to_string(value);
}

void add_rank(std::string& out, const char* name, int32_t rank) {
  if (rank != kAnyRank) add_number(out, name, static_cast<uint64_t>(rank));
}

void add_text(std::string& out, const char* name, std::string_view value) {
  out += ",\"";
  out += name;
  out += "\":\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) >= ' ') out += c;
  }
  out += '"';
}

std::string as_json(const FaultHit& hit, std::string_view rule_text) {
  std::string out = "{\"time\":" + std::to_string(hit.time);
  add_number(out, "pid", static_cast<uint64_t>(::getpid()));
  add_rank(out, "rank", hit.rank);
  add_number(out, "rule", hit.rule);
  add_text(out, "kind", fault_kind_name(hit.kind));
  add_text(out, "text", rule_text);
  if (hit.call != FaultCall::kCount) add_text(out, "call", fault_call_name(hit.call));
  if (hit.qpn != 0) add_number(out, "qpn", hit.qpn);
  if (hit.dest_qpn != 0) add_number(out, "dest_qpn", hit.dest_qpn);
  if (hit.opcode >= 0) {
    add_text(out, "opcode", opcode_name(static_cast<ibv_wr_opcode>(hit.opcode)));
    add_number(out, "wr_id", hit.wr_id);
  }
  if (hit.victim_qpn != 0) add_number(out, "victim_qpn", hit.victim_qpn);
  add_rank(out, "victim_rank", hit.victim_rank);
  return out + "}\n";
}

}  // namespace

FaultLogFile::~FaultLogFile() {
  if (fd_ >= 0) ::close(fd_);
}

void FaultLogFile::open_from_env(int32_t rank) {
  const char* prefix = std::getenv("SOFTHCA_FAULT_LOG");
  if (fd_ >= 0 || prefix == nullptr || *prefix == '\0') return;
  const auto id = rank == kAnyRank ? static_cast<long>(::getpid()) : static_cast<long>(rank);
  const std::string path = std::string(prefix) + "." + std::to_string(id);
  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd_ < 0)
    std::fprintf(stderr, "softhca: SOFTHCA_FAULT_LOG: %s: %s\n", path.c_str(),
                 std::strerror(errno));
}

void FaultLogFile::write(const FaultHit& hit, std::string_view rule_text) noexcept {
  if (fd_ < 0) return;
  const std::string line = as_json(hit, rule_text);
  // A full disk costs the log, not the program under test.
  [[maybe_unused]] const ssize_t n = ::write(fd_, line.data(), line.size());
}

}  // namespace softhca
