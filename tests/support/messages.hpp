#pragma once

#include <trireme/base/check.hpp>

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace trireme::testing {

/// The message of the Error that `call` throws.
template <class Call>
std::string message_of(Call&& call) {
  try {
    std::forward<Call>(call)();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

inline void expect_contains(const std::string& whole, const std::string& part) {
  EXPECT_NE(whole.find(part), std::string::npos) << "expected \"" << part << "\" in:\n" << whole;
}

inline void expect_mentions(const std::string& message, const std::vector<std::string>& words) {
  for (const auto& word : words)
    EXPECT_NE(message.find(word), std::string::npos) << "'" << word << "' in: " << message;
}

}  // namespace trireme::testing
