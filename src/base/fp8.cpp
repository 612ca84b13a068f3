#include <trireme/base/fp8.hpp>

namespace trireme {

EnumWords enum_words(Products) {
  static constexpr auto all = words_of<Products>("compute", "fp32", "fp8");
  return all;
}
EnumWords enum_words(Fp8Algorithm) {
  static constexpr auto all = words_of<Fp8Algorithm>("max", "most_recent");
  return all;
}

}  // namespace trireme
