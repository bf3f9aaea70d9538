// Data header of every SEND (docs/protocol.md 1.4) and the bodies of atomics. Little endian,
// naturally aligned.
#pragma once

#include <cstdint>

namespace mend::ops {

enum class Kind : std::uint8_t { Data = 0, AmoReq = 1, AmoRsp = 2, Nop = 3 };
constexpr std::uint8_t kKinds = 4;

//  0        4        8      10  11   12       16
//  | seq    | ack    | ep   |tag|kind| aux    |
struct DataHeader {
  std::uint32_t seq;       // this SEND's sequence number
  std::uint32_t ack;       // next seq I expect from you, cumulative
  std::uint16_t epoch_lo;  // low 16 bits of the epoch it was (last) posted on
  std::uint8_t tag;        // active-message tag of the layer above
  std::uint8_t kind;       // Kind
  std::uint32_t aux;       // AMO id, or a debug checksum of the payload
};
static_assert(sizeof(DataHeader) == 16);

enum class AmoOp : std::uint8_t {
  Add = 0,
  And = 1,
  Or = 2,
  Xor = 3,
  Swap = 4,
  Cswap = 5,
  Min = 6,
  Max = 7
};
constexpr std::uint8_t kAmoOps = 8;

// Body of AmoReq; DataHeader::aux is the requester's AMO id, echoed by AmoRsp.
struct AmoRequest {
  std::uint64_t address;  // virtual address at the target, naturally aligned to width
  std::uint64_t operand;
  std::uint64_t compare;  // Cswap only
  std::uint32_t rkey;     // registration key the address belongs to (for the error message)
  std::uint8_t op;        // AmoOp
  std::uint8_t width;     // 4 or 8 bytes
  std::uint8_t pad[2];
};
static_assert(sizeof(AmoRequest) == 32);

// Body of AmoRsp: the value before the execution.
struct AmoResponse {
  std::uint64_t value;
  std::uint32_t status;  // 0 = executed
  std::uint32_t pad;
};
static_assert(sizeof(AmoResponse) == 16);

}  // namespace mend::ops
