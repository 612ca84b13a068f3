#include <trireme/schedule/picture.hpp>

#include <algorithm>

namespace trireme::schedule {

Colour mix(const Colour& a, const Colour& b, double part_of_b) {
  Colour out{};
  for (std::size_t i = 0; i < 3; ++i) out[i] = a[i] + (b[i] - a[i]) * part_of_b;
  return out;
}

Seconds Panel::shortest() const {
  Seconds shortest = span();
  for (const Box& box : boxes) shortest = std::min(shortest, box.end - box.begin);
  return shortest;
}

}  // namespace trireme::schedule
