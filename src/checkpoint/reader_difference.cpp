// Compares the arrays of two checkpoints block by block: elements whose bits differ, and the
// largest absolute and relative differences.
#include <trireme/base/text.hpp>
#include <trireme/checkpoint/reader.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace trireme::checkpoint {
namespace {

constexpr std::int64_t compared_elements = 1 << 20;

template <class T>
double loaded(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return static_cast<double>(value);
}

/// IEEE 754 binary16: 5 bits of exponent, 10 of mantissa.
double half(const char* at) {
  std::uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  const int exponent = (bits >> 10) & 31;
  const int mantissa = bits & 1023;
  double value = 0;
  if (exponent == 31)
    value = mantissa == 0 ? std::numeric_limits<double>::infinity()
                          : std::numeric_limits<double>::quiet_NaN();
  else if (exponent == 0)
    value = std::ldexp(mantissa, -24);
  else
    value = std::ldexp(mantissa + 1024, exponent - 25);
  return (bits & 0x8000) != 0 ? -value : value;
}

double brain_float(const char* at) {
  std::uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16));
}

double number(DType dtype, const char* at) {
  switch (dtype) {
    case DType::fp64:
      return loaded<double>(at);
    case DType::fp32:
      return loaded<float>(at);
    case DType::bf16:
      return brain_float(at);
    case DType::fp16:
      return half(at);
    case DType::int64:
      return loaded<std::int64_t>(at);
    case DType::int32:
      return loaded<std::int32_t>(at);
    case DType::uint32:
      return loaded<std::uint32_t>(at);
    case DType::uint16:
      return loaded<std::uint16_t>(at);
    case DType::uint8:
      return loaded<std::uint8_t>(at);
  }
  return 0;
}

void add_element(Difference& out, double x, double y) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  ++out.different;
  if (x == y) return;  // 0 and -0, or large integers that are the same double
  const double absolute = std::abs(x - y);
  const double relative = absolute / std::max(std::abs(x), std::abs(y));
  const bool finite = std::isfinite(x) && std::isfinite(y);
  out.largest_absolute = std::max(out.largest_absolute, finite ? absolute : infinity);
  out.largest_relative = std::max(out.largest_relative, finite ? relative : infinity);
}

Difference difference(const Reader& a, const Reader& b, const ArrayInfo& array) {
  Difference out{array.name};
  out.elements = array.elements();
  const auto size = static_cast<std::size_t>(size_of(array.dtype));
  const auto most = static_cast<std::size_t>(std::min(out.elements, compared_elements));
  std::vector<char> left(most * size);
  std::vector<char> right(most * size);
  for_each_block(whole(array.shape), compared_elements, [&](const Slab& block) {
    const auto count = static_cast<std::size_t>(volume(block.extent));
    a.read_slice(array.name, array.dtype, array.shape, block.offset, block.extent, left.data());
    b.read_slice(array.name, array.dtype, array.shape, block.offset, block.extent, right.data());
    if (std::memcmp(left.data(), right.data(), count * size) == 0) return;
    for (std::size_t i = 0; i < count * size; i += size)
      if (std::memcmp(left.data() + i, right.data() + i, size) != 0)
        add_element(out, number(array.dtype, left.data() + i),
                    number(array.dtype, right.data() + i));
  });
  return out;
}

std::string kind(const ArrayInfo& array) {
  return text(name_of(array.dtype), " ", shape_text(array.shape));
}

}  // namespace

std::vector<Difference> compare(const Reader& a, const Reader& b) {
  std::vector<Difference> out;
  for (const auto& array : a.arrays()) {
    const auto same = [&](const ArrayInfo& other) { return other.name == array.name; };
    const auto other = std::ranges::find_if(b.arrays(), same);
    if (other == b.arrays().end())
      out.push_back({array.name, "only in the first"});
    else if (other->dtype != array.dtype || other->shape != array.shape)
      out.push_back({array.name, text(kind(array), " and ", kind(*other))});
    else
      out.push_back(difference(a, b, array));
  }
  for (const auto& array : b.arrays())
    if (!a.has(array.name)) out.push_back({array.name, "only in the second"});
  return out;
}

}  // namespace trireme::checkpoint
