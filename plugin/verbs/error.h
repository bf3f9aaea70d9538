// The error value of set-up paths: what failed, why (errno) and what to do, in one message for a
// person. Hot paths do not use it (they return PostStatus).
#pragma once

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace mend {

struct Error {
  int code = 0;         // errno value, 0 where none applies
  std::string object;   // the verbs object or call, e.g. "create_qp", "reg_mr"
  std::string message;  // what failed, where, why and what to do
};

template <typename T>
using Result = tl::expected<T, Error>;

inline tl::unexpected<Error> fail(int code, std::string object, std::string message) {
  return tl::unexpected<Error>(Error{code, std::move(object), std::move(message)});
}

}  // namespace mend
