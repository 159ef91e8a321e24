// What a call throws, as text to compare.
#pragma once

#include <exception>
#include <functional>
#include <string>

namespace tilekernels {

/// The words of the Error that the call throws; another text when it throws none, or another kind.
template <class Error>
std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("another kind: ") + error.what();
  }
  return "nothing thrown";
}

}  // namespace tilekernels
