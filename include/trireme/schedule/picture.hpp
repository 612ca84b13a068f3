#pragma once

#include <trireme/base/types.hpp>

#include <array>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

/// Charts of ranks over time, drawn as text or as an SVG.
namespace trireme::schedule {

using Colour = std::array<double, 3>;  ///< red, green, blue: 0 … 255
namespace colours {
inline constexpr Colour white = {255, 255, 255};
inline constexpr Colour idle = {222, 225, 230};
inline constexpr Colour blue = {43, 99, 178};
inline constexpr Colour green = {38, 138, 84};
inline constexpr Colour amber = {222, 146, 38};
inline constexpr Colour violet = {128, 84, 176};
}  // namespace colours
Colour mix(const Colour& a, const Colour& b, double part_of_b);

/// A computation of one rank.
struct Box {
  int rank = 0;
  Seconds begin = 0, end = 0;
  Colour colour = colours::blue;
  std::size_t number = 0;  ///< argument of Panel::words
};

struct BoxWords {
  std::vector<std::string> labels;  ///< labels for a text chart, longest first
  std::string number;               ///< written on the box in a picture
  std::string title;                ///< shown under the pointer
};

/// One chart: a row per rank.
struct Panel {
  std::string line;  ///< text above the chart
  int ranks = 1;
  Seconds begin = 0, end = 0;
  std::vector<Box> boxes;
  std::function<BoxWords(std::size_t)> words;  ///< words of a box, from Box::number
  std::size_t label_width = 1;                 ///< number of characters of the longest label
  std::size_t digits = 1;                      ///< number of characters of the longest number

  Seconds span() const { return end - begin; }
  Seconds shortest() const;  ///< duration of the shortest box; span() without boxes
};

struct Picture {
  std::string title;
  std::vector<Panel> panels;
  bool one_scale = false;  ///< all panels have the same scale
  std::vector<std::pair<Colour, std::string>> legend;
  std::string remark;         ///< text beside the legend
  int columns = 180;          ///< maximum width of a text chart in characters
  std::size_t boxes = 20000;  ///< maximum number of boxes in a panel of an SVG that are not blended
};

/// A self-contained SVG with charts at most 1600 pixels wide.
std::string svg(const Picture& picture);
/// One line per rank, `.` for idle time.
std::string text_chart(const Picture& picture);

}  // namespace trireme::schedule
