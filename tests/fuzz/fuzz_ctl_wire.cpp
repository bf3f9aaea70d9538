// Control messages: parse() must survive anything, and whatever it lets through must encode to the
// same bytes again. Random bytes never have a valid CRC, so the input is also tried with its header
// and CRC put right.
#include <zlib.h>

#include <cstring>
#include <span>
#include <vector>

#include "plugin/conn/accept.h"
#include "plugin/conn/ctl_wire.h"
#include "tests/fuzz/check.h"

using namespace mend::conn;

namespace {

void try_parse(std::span<const std::byte> bytes) {
  const auto parsed = parse(bytes);
  if (!parsed) {
    mend::fuzz::check(std::strcmp(to_string(parsed.error()), "?") != 0, "a drop has a reason");
    return;
  }
  std::byte again[kCtlMaxBytes];
  const std::size_t n = encode(*parsed, again);
  mend::fuzz::check(n == bytes.size(), "same length");
  mend::fuzz::check(std::memcmp(again, bytes.data(), n) == 0, "same bytes");
  (void)addressed_to_me(*parsed, SelfName{1, 2, 3});
  (void)from_peer(*parsed, PeerName{1, 2, 3}, mend::ConnId{4});
}

std::vector<std::byte> repaired(std::span<const std::byte> bytes) {
  std::vector<std::byte> fixed(bytes.begin(), bytes.end());
  CtlHeader header;
  std::memcpy(&header, fixed.data(), sizeof header);
  header.magic = kCtlMagic;
  header.version = kCtlVersion;
  header.type = static_cast<std::uint8_t>(kMsgTypeFirst + header.type % kMsgTypeLast);
  fixed.resize(encoded_size(static_cast<MsgType>(header.type)));
  header.length = static_cast<std::uint16_t>(fixed.size());
  header.crc32 = 0;
  std::memcpy(fixed.data(), &header, sizeof header);
  header.crc32 = static_cast<std::uint32_t>(
      crc32(0, reinterpret_cast<const Bytef*>(fixed.data()), static_cast<uInt>(fixed.size())));
  std::memcpy(fixed.data(), &header, sizeof header);
  return fixed;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  try_parse(bytes);
  if (size >= sizeof(CtlHeader)) try_parse(repaired(bytes));
  return 0;
}
