#pragma once

#include <trireme/base/types.hpp>

#include <gtest/gtest.h>

#include <optional>

namespace trireme::testing {

/// Expects that each enumerator's word parses to the enumerator, and that other words do not parse.
template <class E>
void expect_words_read_back() {
  for (std::size_t i = 0; i < names<E>().size(); ++i) {
    const E value = static_cast<E>(i);
    EXPECT_EQ(parse<E>(name_of(value)), value) << name_of(value);
  }
  EXPECT_EQ(parse<E>("no such word"), std::nullopt);
  EXPECT_EQ(parse<E>(""), std::nullopt);
}

}  // namespace trireme::testing
